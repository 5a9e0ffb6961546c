"""gradring.json without Grafana: its panels, its variables, and a Prometheus to ask. Needs Python alone."""

import json
import re
import urllib.error
import urllib.parse
import urllib.request
from pathlib import Path

FILE = Path(__file__).with_name("gradring.json")


def panels():
    """All of them, rows too, in the order in which they are shown."""
    return json.loads(FILE.read_text())["panels"]


def queries():
    """(title of the panel, expression) of all."""
    return [(panel["title"], target["expr"]) for panel in panels() for target in panel.get("targets", [])]


def substitute(expression, node=".*", job=".*", seconds=60, rate="10s"):
    """What Grafana would ask: `seconds` are shown, `rate` is four scrapes or more."""
    for name, value in (("$__rate_interval", rate), ("$__range", f"{seconds}s"), ("$node", node), ("$job", job)):
        expression = expression.replace(name, value)
    if "$" in expression:
        raise ValueError(f"a variable that nobody knows is in {expression}")
    return expression


def legend(form, labels):
    return re.sub(r"{{\s*(\w+)\s*}}", lambda found: labels.get(found[1], ""), form).strip()


class Prometheus:
    """Its HTTP API; an answer that is no success is an error with its words."""

    def __init__(self, url):
        self._url = url.rstrip("/")

    def get(self, path, **parameters):
        words = urllib.parse.urlencode(parameters)
        try:
            with urllib.request.urlopen(f"{self._url}/api/v1/{path}?{words}", timeout=20) as answer:
                return json.load(answer)["data"]
        except urllib.error.HTTPError as error:
            raise ValueError(f"{path} {parameters}: {error.read().decode(errors='replace')}") from None

    def query(self, expression, at=None):
        when = {} if at is None else {"time": at}
        return self.get("query", query=expression, **when)["result"]

    def query_range(self, expression, begin, end, step):
        return self.get("query_range", query=expression, start=begin, end=end, step=step)["result"]

    def now(self):
        """By its clock, in seconds: a scalar is one pair."""
        return float(self.query("time()")[1])
