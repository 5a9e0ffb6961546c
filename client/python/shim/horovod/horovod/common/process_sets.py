"""Groups of ranks."""

from gradring import ProcessSet as ProcessSet
from gradring import add_process_set as add_process_set
from gradring import global_process_set as global_process_set
from gradring import remove_process_set as remove_process_set
