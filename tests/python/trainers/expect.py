"""What the trainers of these tests check again and again."""

import numpy as np


def refused(error, word, function, *args, **keywords):
    try:
        function(*args, **keywords)
    except error as told:
        assert word in str(told), told
        return
    raise AssertionError(f"{function} {args} {keywords} was not refused")


def close(got, wanted, **how):
    np.testing.assert_allclose(np.asarray(got, np.float64), np.asarray(wanted, np.float64), **{"rtol": 1e-5,
                               "atol": 1e-6, **how})
