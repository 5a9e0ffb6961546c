"""Reads what a program of gradring says of itself in --help: so its manual page and its completion cannot say
anything else than its option definitions, from which --help is printed."""

import os
import re
import subprocess
from dataclasses import dataclass, field


@dataclass
class Option:
    name: str  # without dashes
    letter: str = ""
    value: str = ""  # how --help calls it; empty: a switch
    default: str = ""
    help: str = ""
    also: list = field(default_factory=list)  # other spellings, with dashes

    @property
    def flags(self):
        return [f"--{self.name}", *([f"-{self.letter}"] if self.letter else []), *self.also]


@dataclass
class Command:
    name: str
    arguments: str
    help: str

    @property
    def options(self):
        """(flag, value) of all that its line names."""
        return list(dict.fromkeys(re.findall(r"(?<![\w-])(--?[a-z][a-z-]*)(?: ([A-Z][A-Z:]*|\d\w*))?", f"{self.arguments} {self.help}")))

    @property
    def words(self):
        """What its first argument may be, where that is one of a few."""
        found = re.match(r"[a-z-]+(?:\|[a-z-]+)+", self.arguments)
        return found[0].split("|") if found else []


@dataclass
class Help:
    program: str
    usage: str = ""
    introduction: list = field(default_factory=list)  # lines
    commands: list = field(default_factory=list)
    groups: dict = field(default_factory=dict)  # heading to options
    ending: list = field(default_factory=list)  # lines

    @property
    def options(self):
        return [option for group in self.groups.values() for option in group]


OPTION = re.compile(r"(?:-(?P<letter>\w) \[ )?--(?P<name>[a-z][\w-]*)(?: \])?(?: (?P<value>[^(\s].*?))?(?: \(=(?P<default>.*)\))?$")


def column_of(lines):
    """Where descriptions begin: as far in as the lines that continue one."""
    further = [len(line) - len(line.lstrip()) for line in lines if not line.lstrip().startswith("-") or line.startswith("     ")]
    if further:
        return min(further)
    widest = max(map(len, lines))
    return next(at for at in range(4, widest) if all(line[at - 1:at] == " " and line[at:at + 1].strip() for line in lines))


def options_of(lines):
    column = column_of(lines)
    options = []
    for line in lines:
        said = line[:column].strip()
        if said and not OPTION.match(said):
            raise ValueError(f"--help says what is no option: {line!r}")
        if said:
            found = OPTION.match(said).groupdict(default="")
            options.append(Option(found["name"], found["letter"], found["value"], found["default"]))
        options[-1].help = f"{options[-1].help} {line[column:].strip()}".strip()
    for option in options:
        option.also = re.findall(r"\balso (-[a-z][a-z-]*)", option.help)
        bracketed = re.search(r" \[([^\[\]=]+)\]$", option.help)
        if bracketed and not option.default:
            option.default, option.help = bracketed[1], option.help[:bracketed.start()]
    return options


def parse(program, text):
    told = Help(program)
    blocks = [block.splitlines() for block in re.split(r"\n{2,}", text.strip("\n"))]
    told.usage = blocks[0][0].removeprefix("usage: ")
    for block in [blocks[0][1:], *blocks[1:]]:
        if not block:
            continue
        if block[0] == "Commands":
            for line in block[1:]:
                if line.startswith("     ") and told.commands:
                    told.commands[-1].help = f"{told.commands[-1].help} {line.strip()}".strip()
                    continue
                found = re.match(r"  ([a-z-]+)(?: (\S.*?))?(?:\s{2,}(\S.*))?$", line)
                if not found:
                    raise ValueError(f"--help says what is no command: {line!r}")
                told.commands.append(Command(found[1], found[2] or "", found[3] or ""))
        elif re.match(r"  +-", block[1] if len(block) > 1 and block[0].rstrip().endswith(":") else ""):
            told.groups[block[0].rstrip(":")] = options_of(block[1:])
        elif told.groups:
            told.ending += [*block, ""]
        else:
            told.introduction += [*block, ""]
    return told


def ask(program, path):
    """Of the program at `path`; nobody's settings are in it."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("GRADRING_", "HOROVOD_"))}
    return parse(program, subprocess.run([path, "--help"], check=True, capture_output=True, text=True, timeout=60,
                                         env={**environment, "LC_ALL": "C.UTF-8"}).stdout)
