"""What an op raises that failed."""

from gradring import HorovodInternalError as HorovodInternalError
