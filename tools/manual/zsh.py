"""Completion for zsh, by its _arguments."""

import re

import values

ASK = r"""
_gradringctl_ask() {
  local -a asked=(gradringctl) names
  (( ${+opt_args[--runtime-dir]} )) && asked+=(--runtime-dir ${opt_args[--runtime-dir]})
  names=(${(f)"$(timeout 2 $asked --json $1 2>/dev/null | sed -n 's/^ *"'$2'": "\([^"\\]*\)",\{0,1\}$/\1/p')"})
  compadd -a names
}
_gradringctl_jobs() { _gradringctl_ask jobs name }
_gradringctl_nodes() { _gradringctl_ask peers node }
"""


def quoted(text):
    return "'" + text.replace("'", "'\\''") + "'"


def action_of(words, kind, live):
    if words:
        return f"({' '.join(words)})"
    return {"files": "_files", "folders": "_files -/", "devices": "_net_interfaces",
            "jobs": "_gradringctl_jobs" if live else " ", "nodes": "_gradringctl_nodes" if live else " "}.get(kind, " ")


def spec(flag, value, help_text, action):
    told = re.sub(r"([\[\]:\\])", r"\\\1", help_text)
    several = "*" if re.search(r"once for each|may be repeated", help_text) else ""
    optional = ":" if value.startswith("[") else ""
    name = re.sub(r"[\[\]:]", " ", value).strip()
    return quoted(f"{several}{flag}[{told}]" + (f":{optional}{name}:{action}" if value else ""))


def specs_of(told, live):
    for option in told.options:
        if values.is_taken(option):
            action = action_of(values.words_of(option), values.kind_of(option.value), live)
            for flag in option.flags:
                yield spec(flag, option.value, option.help, action)


def script(told):
    live = told.program == "gradringctl"
    lines = [f"#compdef {told.program}", f"# Completion of {told.program} for zsh, made from its --help.", *([ASK] if live else [])]
    arguments = [f"  {one} \\" for one in specs_of(told, live)]
    if told.commands:
        names = " ".join(quoted(f"{command.name}:{command.help}") for command in told.commands)
        lines += [f"_gradringctl_commands() {{ local -a commands=({names}); _describe command commands }}",
                  "local state line", "typeset -A opt_args", "_arguments -C -s \\", *arguments,
                  "  '1:command:_gradringctl_commands' \\", "  '*::argument:->arguments'", "[[ $state == arguments ]] || return",
                  "case $line[1] in"]
        for command in told.commands:
            own = [spec(flag, value, flag.strip("-"), action_of([], values.kind_of(value), live)) for flag, value in command.options]
            takes_job = command.arguments.startswith(("NAME", "JOB", "[JOB]"))
            if command.words or takes_job:
                own.append(quoted(f"1:argument:{action_of(command.words, 'jobs', live)}"))
            if own:
                lines.append(f"  {command.name}) _arguments {' '.join(own)} ;;")
        lines.append("esac")
    else:
        first = values.first_words_of(told)
        rest = [f"  '1:what:({' '.join(first)})'"] if first else (
            ["  '(-)1:command:_command_names -e' \\", "  '*::argument:_normal'"] if "COMMAND [ARGUMENT]" in told.usage else ["  '*: :'"])
        lines += ["_arguments -s \\", *arguments, *rest]
    return "\n".join(lines) + "\n"
