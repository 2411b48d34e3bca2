#!/bin/sh
# The installed package, tried from an empty folder: everything a user reaches must be inside the wheel.
set -eu
bin=$1
case $bin in /*) ;; *) bin=$PWD/$bin ;; esac
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
"$bin/critic-prm" --version
"$bin/critic-prm" --help > /dev/null
"$bin/python" - <<'PYTHON'
from importlib.util import find_spec
from critic_prm.registry import resource

for extra in ("torch", "ray", "vllm", "pyarrow"):
    assert find_spec(extra) is None, f"the base install brings {extra}"
for name in ("prompts", "recipes", "examples/trajectories.jsonl", "cache.db.example"):
    assert "site-packages" in str(resource(name)), f"{name} is not in the wheel"
PYTHON
examples=$("$bin/python" -c 'from critic_prm.registry import resource; print(resource("examples/trajectories.jsonl"))')
for style in $("$bin/python" -c 'from critic_prm.styles.prompt import style_names; print(*style_names())'); do
    "$bin/critic-prm" prompts render "$style" --input "$examples" --limit 1 > /dev/null
done
"$bin/critic-prm" examples cookbook > /dev/null
"$bin/critic-prm" evaluate rules cookbook/examples.jsonl > /dev/null
"$bin/critic-prm" label cookbook/examples.jsonl --judge recorded/example-judge --db cookbook/cache.db.example --offline -o labels.jsonl
"$bin/python" cookbook/server.py --help > /dev/null
"$bin/critic-prm" quickstart -n 400 made > quickstart.txt 2>&1 || { cat quickstart.txt; exit 1; }
test -s made/verifier/verifier.json
echo "the wheel works from another folder"
