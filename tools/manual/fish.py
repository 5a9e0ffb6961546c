"""Completion for fish."""

import values

ASK = r"""
function __gradringctl_ask
    timeout 2 gradringctl --json $argv[1] 2>/dev/null | string replace -rf '^ *"'$argv[2]'": "([^"\\\\]*)",?$' '$1'
end
"""


def quoted(text):
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


def value_of(words, kind):
    if words:
        return f" -x -a {quoted(' '.join(words))}"
    return {"files": " -r -F", "folders": " -x -a '(__fish_complete_directories)'", "devices": " -x -a '(__fish_print_interfaces)'",
            "nodes": " -x -a '(__gradringctl_ask peers node)'", "jobs": " -x -a '(__gradringctl_ask jobs name)'"}.get(kind, " -x")


def line(told, flag, value, words, help_text, condition=""):
    kind = "l" if flag.startswith("--") else "s" if len(flag) == 2 else "o"
    takes = "" if not value or value.startswith("[") else value_of(words, values.kind_of(value))
    return f"complete -c {told.program}{condition} -{kind} {flag.lstrip('-')}{takes} -d {quoted(help_text)}"


def script(told):
    lines = [f"# Completion of {told.program} for fish, made from its --help."]
    if told.commands:
        lines += [ASK]
    if "COMMAND [ARGUMENT]" in told.usage:
        lines.append(f"complete -c {told.program} -x -a '(__fish_complete_subcommand --fcs-skip=1)'")
    else:
        lines.append(f"complete -c {told.program} -f")
    for option in told.options:
        if values.is_taken(option):
            lines += [line(told, flag, option.value, values.words_of(option), option.help) for flag in option.flags]
    for command in told.commands:
        lines.append(f"complete -c {told.program} -n __fish_use_subcommand -a {command.name} -d {quoted(command.help)}")
        seen = f" -n '__fish_seen_subcommand_from {command.name}'"
        lines += [line(told, flag, value, [], "", seen) for flag, value in command.options]
        if command.words:
            lines.append(f"complete -c {told.program}{seen} -a {quoted(' '.join(command.words))}")
        elif command.arguments.startswith(("NAME", "JOB", "[JOB]")):
            lines.append(f"complete -c {told.program}{seen} -a '(__gradringctl_ask jobs name)'")
    if not told.commands and values.first_words_of(told):
        lines.append(f"complete -c {told.program} -a {quoted(' '.join(values.first_words_of(told)))}")
    return "\n".join(lines) + "\n"
