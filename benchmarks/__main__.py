"""Run the benchmarks that are named, or all."""

from __future__ import annotations

import importlib
import pkgutil
import sys

import benchmarks


def main(names: list[str]) -> int:
    known = sorted(
        module.name for module in pkgutil.iter_modules(benchmarks.__path__) if not module.name.startswith("_")
    )
    unknown = [name for name in names if name not in known]
    if unknown:
        print(f"There is no benchmark {', '.join(unknown)}; there are: {', '.join(known)}")
        return 2
    for name in names or known:
        print(f"{name}: {(importlib.import_module(f'benchmarks.{name}').__doc__ or '').splitlines()[0]}")
        for figure in importlib.import_module(f"benchmarks.{name}").measure():
            print(f"  {figure}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
