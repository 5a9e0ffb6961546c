"""How the trainers of these tests report."""

import json


def say(**report):
    print(json.dumps(report), flush=True)
