"""Manual pages in man(7)'s language, from pages/ and what --help says.

A page in pages/ is written by hand but for lines that are one word between @: @USAGE@, @COMMANDS@, @OPTIONS@, @SETTINGS@
(a group of options as keys of a file), @ENDING@; and @VERSION@ anywhere.
"""

import re


def escaped(text):
    """As it stands, also where a line begins like a request."""
    text = text.replace("\\", "\\e").replace("-", "\\-")
    return re.sub(r"(?m)^([.'])", r"\\&\1", text)


def usage(told):
    program, _, rest = told.usage.partition(" ")
    return [f".B {escaped(program)}", escaped(rest)]


def commands(told):
    lines = []
    for command in told.commands:
        lines += [".TP", f".BR {escaped(command.name)}" + (f' " {escaped(command.arguments)}"' if command.arguments else ""),
                  escaped(sentence(command.help))]
    return lines


def sentence(text):
    return text[:1].upper() + text[1:] + ("" if text.endswith((".", "!", "?")) else ".")


def described(option):
    text = sentence(option.help)
    return text + (f" Default: {option.default}." if option.default else "")


def options(told):
    lines = []
    for heading, group in told.groups.items():
        if len(told.groups) > 1:
            lines += [f".SS {escaped(heading)}"]
        for option in group:
            flags = ", ".join(f"\\fB{escaped(flag)}\\fR" for flag in option.flags)
            value = f" \\fI{escaped(option.value)}\\fR" if option.value else ""
            lines += [".TP", f"{flags}{value}", escaped(described(option))]
    return lines


def settings(told):
    """The options that are keys of the configuration file as well."""
    lines = []
    for option in next(group for heading, group in told.groups.items() if heading.startswith("Settings")):
        lines += [".TP", f"\\fB{escaped(option.name)}\\fR = \\fI{escaped(option.value or 'true')}\\fR", escaped(described(option))]
    return lines


def ending(told):
    """What --help says below the options, paragraph by paragraph."""
    paragraphs = re.split(r"\n{2,}", "\n".join(told.ending).strip("\n"))
    return [line for paragraph in paragraphs for line in (".PP", escaped(" ".join(paragraph.split())))][1:]


PARTS = {"@USAGE@": usage, "@COMMANDS@": commands, "@OPTIONS@": options, "@SETTINGS@": settings, "@ENDING@": ending}


def page(template, told, version):
    lines = []
    for line in template.replace("@VERSION@", version).splitlines():
        lines += PARTS[line](told) if line in PARTS else [line]
    return "\n".join(lines) + "\n"
