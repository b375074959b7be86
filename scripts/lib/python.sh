# shellcheck shell=bash
# Choose a Python to create the environment with.

# Print why a Python cannot be used; nothing when it can.
reason_against() {
  command -v "$1" >/dev/null || { echo "not found"; return; }
  "$1" - <<'PYTHON' 2>/dev/null || echo "does not run"
import sys

version = "%d.%d" % sys.version_info[:2]
package = "python" + version
if not (3, 10) <= sys.version_info[:2] <= (3, 13):
    print("is %s, 3.10 to 3.13 are supported" % version)
    sys.exit()

import importlib.util
import os
import sysconfig

if not all(importlib.util.find_spec(name) for name in ("venv", "ensurepip")):
    print("has no venv (sudo apt install %s-venv)" % package)
elif not os.path.exists(os.path.join(sysconfig.get_path("include"), "Python.h")):
    print("has no C headers (sudo apt install %s-dev)" % package)
PYTHON
}

# Print the first suitable interpreter.
find_python() {
  local candidates=(python3 python3.13 python3.12 python3.11 python3.10) candidate reason reasons=""
  # A sourced ROS is compiled for the distribution's own Python.
  if ros_is_sourced; then candidates=(/usr/bin/python3 python3); fi
  if [ -n "${INFINIPOT_PYTHON:-}" ]; then candidates=("$INFINIPOT_PYTHON"); fi
  for candidate in "${candidates[@]}"; do
    reason=$(reason_against "$candidate")
    if [ -z "$reason" ] && ros_is_sourced; then
      "$candidate" -c 'import rclpy' 2>/dev/null || reason="cannot import the sourced rclpy"
    fi
    if [ -z "$reason" ]; then
      echo "$candidate"
      return
    fi
    reasons+="
  $candidate: $reason"
  done
  fail "No suitable Python found:$reasons
Remedy: install one of 3.10, 3.11, 3.12, 3.13 with venv and headers (sudo apt install python3-venv python3-dev), or name one in INFINIPOT_PYTHON."
}
