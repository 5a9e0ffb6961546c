"""Completion for bash, without the package bash-completion: it looks at the line itself, since bash would take names
of nodes, which have colons, apart."""

import values

ASK = r"""
# Names that the live daemon knows: of jobs, or of the nodes it is connected with.
@F@_ask() {
  local -a asked=(gradringctl)
  [ -n "$folder" ] && asked+=(--runtime-dir "$folder")
  timeout 2 "${asked[@]}" --json "$1" 2>/dev/null | sed -n 's/^ *"'"$2"'": "\([^"\\]*\)",\{0,1\}$/\1/p'
}
"""

BODY = r"""
# Those of the lines that begin as what is typed. Not by compgen -W, which would run what a name says.
@F@_match() {
  local line
  while IFS= read -r line; do
    [[ $line == "$cur"* ]] && COMPREPLY+=("$(printf %q "$line")")
  done
}

@F@_offer() {
  case $1 in
    files) mapfile -t COMPREPLY < <(compgen -f -- "$cur") && compopt -o filenames 2>/dev/null ;;
    folders) mapfile -t COMPREPLY < <(compgen -d -- "$cur") && compopt -o filenames 2>/dev/null ;;
    programs) mapfile -t COMPREPLY < <(compgen -c -- "$cur") ;;
    devices) @F@_match < <(ls /sys/class/net) ;;
@LIVE@    words) @F@_match <<<"${2// /$'\n'}" ;;
  esac
}

@F@() {
  COMPREPLY=()
  local line=${COMP_LINE:0:COMP_POINT} cur="" previous="" first="" second="" folder="" word i
  local -a words
  read -ra words <<<"$line"
  case $line in *[[:space:]]) words+=("") ;; esac
  for ((i = 1; i < ${#words[@]} - 1; i++)); do
    word=${words[i]}
    case $word in
      --runtime-dir=*) folder=${word#*=} ;;
      --runtime-dir) folder=${words[i + 1]} && ((i++)) ;;
      @VALUED@) ((i++)) ;;
      -*) ;;
      *) if [ -z "$first" ]; then first=$word; elif [ -z "$second" ]; then second=$word; fi@STOP@ ;;
    esac
  done
  cur=${words[-1]} previous=${words[-2]}
  case $cur in --*=*) previous=${cur%%=*} cur=${cur#*=} ;; esac
  case $previous in
@VALUES@    *)
      case $first,$cur in
@FIRST@      esac
      ;;
  esac
  # bash replaces only what is behind the last character that it breaks words at.
  if [[ $cur == *:* && $COMP_WORDBREAKS == *:* ]]; then
    local before=${cur%"${cur##*:}"}
    COMPREPLY=("${COMPREPLY[@]#"$before"}")
  fi
}
complete -F @F@ @P@
"""


def offer(name, kind, words):
    return f'{name}_offer words "{" ".join(words)}"' if words else f"{name}_offer {kind}" if kind else ":"


def script(told):
    name = "_" + told.program.replace("-", "_")
    options = [option for option in told.options if values.is_taken(option)]
    live = told.program == "gradringctl"
    launches = "COMMAND [ARGUMENT]" in told.usage
    valued, guessed, cases = [], ["--runtime-dir"], []
    for option in options:
        if not option.value or option.value.startswith("["):
            continue
        valued += [flag for flag in option.flags if flag != "--runtime-dir"]
        words, kind = values.words_of(option), values.kind_of(option.value)
        if words or kind:
            guessed += option.flags
            cases.append(f"    {'|'.join(option.flags)}) {offer(name, kind, words)} ;;\n")
    for command in told.commands:
        for flag, value in command.options:
            if value and flag not in [*valued, "--runtime-dir"]:
                valued.append(flag)
                if values.kind_of(value):
                    guessed.append(flag)
                    cases.append(f"    {flag}) {offer(name, values.kind_of(value), [])} ;;\n")
    cases.append(f"    {'|'.join(flag for flag in valued if flag not in guessed)}) ;;\n")
    flags = " ".join(flag for option in options for flag in option.flags)
    first = [f'        {"" if launches else "*"},-*) {name}_offer words "{flags}" ;;\n']
    for command in reversed(told.commands):
        own = "".join(f" {flag}" for flag, _ in command.options)
        first.insert(0, f'        {command.name},-*) {name}_offer words "{flags}{own}" ;;\n')
        takes_job = command.arguments.startswith(("NAME", "JOB", "[JOB]"))
        if command.words or takes_job:
            first.append(f'        {command.name},*) [ -n "$second" ] || {offer(name, "jobs", command.words)} ;;\n')
    if launches:
        first.append(f"        ,*) {name}_offer programs ;;\n        *) {name}_offer files ;;\n")
    elif values.first_words_of(told):
        first.append(f'        ,*) {name}_offer words "{" ".join(values.first_words_of(told))}" ;;\n')
    stop = "; [ -z \"$first\" ] || break" if launches else ""
    lives = "".join(f"    {kind}) {name}_match < <({name}_ask {what} {key}) ;;\n"
                    for kind, what, key in (("jobs", "jobs", "name"), ("nodes", "peers", "node"))) if live else ""
    text = f"# Completion of {told.program} for bash, made from its --help.\n" + (ASK if live else "") + BODY
    for mark, what in (("@LIVE@", lives), ("@VALUED@", "|".join(valued)), ("@VALUES@", "".join(cases)), ("@FIRST@", "".join(first)),
                       ("@STOP@", stop), ("@F@", name), ("@P@", told.program)):
        text = text.replace(mark, what)
    return text
