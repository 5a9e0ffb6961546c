#!/bin/sh
# What gradring-scale says of numbers that no ring has: it ends with status 2 and a sentence with those words.
set -eu
program=$1

refused() {  # WORDS FLAG...
  words=$1
  shift
  status=0
  said=$(timeout 20 "$program" "$@" 2>&1 >/dev/null) || status=$?
  case $status:$said in
    2:*"$words"*) ;;
    *) echo "$*: exit status $status, said: $said" >&2; exit 1 ;;
  esac
}

refused '--nodes wants 1 to 65536' allreduce --nodes 0
refused '--nodes wants' allreduce --nodes -1
refused '--bytes wants' allreduce --bytes -4
refused '--bucket wants' train --bucket 0
refused '--steps wants' allreduce --steps 0
for number in '' nonsense 5x 0 -3 nan inf; do
  refused '--set wants FIELD=NUMBER' allreduce --nodes 1 --set "thread_gbs=$number"
done
refused '--set wants' allreduce --set thread_gbs
refused '--set wants' allreduce --set ''
"$program" allreduce --nodes 2 --bytes 4096 --set helpers=0 lane_gbit=1.5e1 >/dev/null
