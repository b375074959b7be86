# shellcheck shell=bash
# Sourced by scripts/demo and scripts/test: a virtual environment with this package in it, up to date.
#
#   prepare_environment EXTRAS      as in pip's `.[EXTRAS]`, e.g. test,lint; empty: none
#
# Environment variables:
#   INFINIPOT_VENV     where the environment is kept (default: .venv, or .venv-<distro> under a sourced ROS)
#   INFINIPOT_PYTHON   the Python to create it with (default: the first suitable one found)

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)

# shellcheck source-path=SCRIPTDIR
. "$root/scripts/lib/messages.sh"
# shellcheck source-path=SCRIPTDIR
. "$root/scripts/lib/python.sh"

# True when a ROS 2 installation is sourced, whose rclpy is then used in place of the wheels from PyPI.
ros_is_sourced() {
  local prefix
  while IFS= read -r -d : prefix; do
    [ -n "$prefix" ] && [ -d "$prefix/share/rosidl_default_generators" ] && return 0
  done <<<"${AMENT_PREFIX_PATH:-}:"
  return 1
}

check_platform() {
  [ "$(uname -s)" = Linux ] || fail "Linux is needed, this is $(uname -s)."
  command -v c++ >/dev/null || command -v g++ >/dev/null ||
    fail "No C++ compiler found; the ROS interfaces are compiled here. Remedy: sudo apt install g++"
  if ! ros_is_sourced; then
    [ -z "${ROS_DISTRO:-}" ] ||
      fail "ROS $ROS_DISTRO is sourced without the interface generators. Remedy: sudo apt install ros-$ROS_DISTRO-ros-base, or use a shell without ROS."
    [ "$(uname -m)" = x86_64 ] ||
      fail "ROS wheels exist for x86_64 only, this is $(uname -m). Remedy: install ROS 2 and source it: . /opt/ros/<distro>/setup.bash"
  fi
}

# Print a digest of files (and folders, recursively) below the repository root.
digest() {
  (cd "$root" && find "$@" -type f -not -path '*/__pycache__/*' -print0 |
    LC_ALL=C sort -z | xargs -0 sha256sum | sha256sum | cut -d ' ' -f 1)
}

create_environment() {
  if [ -x "$venv/bin/python" ] && "$venv/bin/python" -c 'import sys' 2>/dev/null; then
    say "Environment: $venv ($("$venv/bin/python" -V))"
    return
  fi
  [ ! -e "$venv" ] || fail "$venv is there but has no working Python. Remedy: remove it and run this again."
  local python options=()
  python=$(find_python)
  if ros_is_sourced; then options=(--system-site-packages); fi
  step "Creating $venv with $python ($("$python" -V))" "$python" -m venv "${options[@]}" "$venv"
}

# Write the constraints to use. Under a sourced ROS, what its Python already has of NumPy and PyTorch
# stays: cv_bridge was compiled for that NumPy, and robots come with a PyTorch for their accelerator.
write_constraints() {
  local target=$1 name version
  cp "$root/constraints.txt" "$target"
  ros_is_sourced || return 0
  for name in numpy torch; do
    version=$("$venv/bin/python" -c "import importlib.metadata as m; print(m.version('$name'))" 2>/dev/null) || continue
    say "Keeping $name $version of the ROS installation"
    sed -i "s/^$name==.*/$name==$version/" "$target"
    # The newest OpenCV wheels want NumPy 2.
    if [ "$name" = numpy ]; then sed -i '/^opencv-python-headless==/d; /^scipy==/d; /^matplotlib==/d' "$target"; fi
  done
}

# Install what is missing or stale. Two stamps: one for everything that decides about dependencies, one
# for the package's own files, whose reinstallation takes seconds.
install_package() {
  local extras=$1
  local context requirements sources
  context="$("$venv/bin/python" -VV) ${AMENT_PREFIX_PATH:-}"
  requirements="$(digest setup.py pyproject.toml requirements.txt constraints.txt scripts/packaging) $context"
  sources=$(digest setup.py pyproject.toml scripts/packaging package.xml CMakeLists.txt cmake README.md \
    msg srv action launch config infinipot_ros)
  local stamp_requirements="$venv/.requirements-${extras:-none}" stamp_sources="$venv/.sources"

  if [ "$(cat "$stamp_requirements" 2>/dev/null)" != "$requirements" ]; then
    write_constraints "$venv/constraints.txt"
    step "Installing dependencies and the package (the first time some minutes)" \
      "$venv/bin/python" -m pip install -c "$venv/constraints.txt" "$root${extras:+[$extras]}"
    printf '%s' "$requirements" >"$stamp_requirements"
    printf '%s' "$sources" >"$stamp_sources"
  elif [ "$(cat "$stamp_sources" 2>/dev/null)" != "$sources" ]; then
    step "Sources changed: reinstalling the package" \
      "$venv/bin/python" -m pip install --no-deps --force-reinstall "$root"
    printf '%s' "$sources" >"$stamp_sources"
  else
    say "Package: up to date"
  fi
}

# Let processes started from here find the package's libraries and ament resources.
activate() {
  export VIRTUAL_ENV=$venv PATH="$venv/bin:$PATH"
  if ros_is_sourced; then
    export AMENT_PREFIX_PATH="$venv:$AMENT_PREFIX_PATH"
    export LD_LIBRARY_PATH="$venv/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"
  else
    # The wheels' bootstrapper sets the library path once per process tree, marked by this variable. A
    # parent in another environment may have set both; without the mark it is done for ours.
    unset _ROS_WHEELS_BOOTSTRAP_COMPLETE
  fi
}

check_import() {
  local found expected=$venv/lib
  found=$(cd / && "$venv/bin/python" -c 'import infinipot_ros.srv; print(infinipot_ros.__file__)') ||
    fail "The installed package does not import. Remedy: remove $venv and run this again."
  case $found in
    "$expected"/*) ;;
    *) fail "PYTHONPATH puts another infinipot_ros first: $found. Remedy: use a shell that has not sourced that workspace." ;;
  esac
}

prepare_environment() {
  local extras=$1
  local started=$SECONDS
  check_platform
  if ros_is_sourced; then
    venv=${INFINIPOT_VENV:-$root/.venv-${ROS_DISTRO:-ros}}
    say "ROS: ${ROS_DISTRO:-sourced installation}"
  else
    venv=${INFINIPOT_VENV:-$root/.venv}
    say "ROS: wheels from PyPI, no installation is sourced"
  fi
  mkdir -p "$(dirname "$venv")"
  exec 9>"$venv.lock"
  flock --nonblock 9 || { say "Waiting for another script that sets up $venv"; flock 9; }
  create_environment
  install_package "$extras"
  activate
  check_import
  flock -u 9
  exec 9>&-
  say "Ready after $((SECONDS - started)) s"
}
