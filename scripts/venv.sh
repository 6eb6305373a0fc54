#!/usr/bin/env bash
# Makes a virtual environment that imports the tree's python/dtorch, and installs requirement sets
# into it:   venv.sh FOLDER PYTHON SET...
# A SET is one of requirements.py, or `torch` or `model`. An installed set leaves a stamp with its
# text, so that a second call costs nothing.
source "$(dirname "$0")/common.sh"

venv=$1 base=$2
shift 2

if ! "$venv/bin/python" -c "import sys; sys.exit(sys.prefix != '$venv')" 2>/dev/null; then
    version=$(python_version "$base")
    case $base in
    /usr/bin/*) scripts/apt.sh "python$version-venv" "python$version-dev" ;;
    esac
    say "creating ${venv#"$ROOT"/} with Python $version"
    rm -rf "$venv"
    "$base" -m venv "$venv"
fi
python=$venv/bin/python
site=$("$python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
[ -f "$site/dtorch-tree.pth" ] || echo "$ROOT/python" >"$site/dtorch-tree.pth"

# install NAME PIP-ARGUMENTS...
install() {
    local stamp=$venv/.installed-$1
    shift
    [ "$(cat "$stamp" 2>/dev/null)" != "$*" ] || return 0
    say "installing into ${venv#"$ROOT"/}: $*"
    "$python" -m pip install -qq "$@"
    echo "$*" >"$stamp"
}

for set; do
    case $set in
    torch)
        # Exactly this version: a range, or another package's wish, would fetch gigabytes of CUDA.
        if [ "$(python_version "$python")" = "$TORCH_PYTHON" ]; then
            install torch "torch==$TORCH_VERSION"
        else
            say "no torch: it is installed on Python $TORCH_PYTHON only; what needs it is skipped"
        fi
        ;;
    model) install model --no-deps "$MODEL" ;; # its dependencies are another embedding library
    *)
        mapfile -t wanted < <("$python" scripts/requirements.py "$set")
        [ ${#wanted[@]} -eq 0 ] || install "$set" "${wanted[@]}"
        ;;
    esac
done
