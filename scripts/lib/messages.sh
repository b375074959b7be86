# shellcheck shell=bash
# Progress lines of the scripts, and the one way in which they fail.

say() {
  printf '==> %s\n' "$*"
}

fail() {
  printf 'error: %s\n' "$*" >&2
  exit 1
}

# Run a command quietly under a label and tell how long it took; show its output when it fails.
#
#   step LABEL COMMAND [ARGUMENT...]
step() {
  local label=$1 log started=$SECONDS status=0
  shift
  log=$(mktemp "${TMPDIR:-/tmp}/infinipot-setup.XXXXXX")
  say "$label ..."
  "$@" >"$log" 2>&1 9>&- &
  local command=$!
  trap 'kill "$command" 2>/dev/null; rm -f "$log"; exit 130' INT TERM
  while kill -0 "$command" 2>/dev/null; do
    sleep 0.2
    if [ -t 1 ] && [ $((SECONDS - started)) -gt 0 ]; then printf '\r    %d s ' $((SECONDS - started)); fi
  done
  if [ -t 1 ]; then printf '\r'; fi # the next line replaces the running count
  wait "$command" || status=$?
  trap - INT TERM
  if [ "$status" -ne 0 ]; then
    tail -n 40 "$log" >&2
    fail "$label: failed with status $status after $((SECONDS - started)) s; the whole output is in $log"
  fi
  rm -f "$log"
  printf '    done in %d s\n' $((SECONDS - started))
}
