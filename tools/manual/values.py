"""What may stand behind an option or a command, for completion: by what --help calls it."""

import re

KINDS = {"FILE": "files", "PATH": "files", "DIR": "folders", "FOLDER": "folders", "NODE": "nodes", "JOB": "jobs", "DEVICE": "devices"}
WORDS = {"ON": ["on", "off"], "WHEN": ["local", "stable"], "arg": ["true", "false"],
         "LAUNCHER": ["auto", "ssh", "srun", "mpirun"]}
# The help of these is a list, or ends in one.
LISTED = {"TYPE", "OP", "WIRE", "LEVEL"}


def kind_of(value):
    """"files", "folders", "nodes", "jobs", "devices", or "" for what nobody can guess."""
    return KINDS.get(value, "")


def words_of(option):
    """The words that an option takes, where these are few."""
    if option.value not in LISTED:
        return WORDS.get(option.value, [])
    return re.findall(r"[a-z][\w-]*", option.help.split(";")[0].rpartition(": ")[2].replace(" or ", " "))


def is_taken(option):
    """Whether it does anything: some are there for scripts that were written for another program."""
    return not option.help.startswith(("no need:", "refused:"))


def first_words_of(told):
    """What may stand where the first word that is no option stands: commands, or collectives."""
    if told.commands:
        return [command.name for command in told.commands]
    text = " ".join(told.introduction)
    listed = re.search(r"columns of [\w-]+: ([a-z, -]+? or [a-z]+)\.", re.sub(r"\s+", " ", text))
    return re.split(r", | or ", listed[1]) if listed else []
