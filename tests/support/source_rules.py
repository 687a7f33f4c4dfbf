"""Rules for the source: rooms, kinds of modules, Spark Connect, length of functions, stand-ins.

`test_layers.py` applies them.

`test_layers.py` applies them.

The length of a file has no rule.

Every rule is a function from one parsed source to a list of findings.
"""

from __future__ import annotations

import ast
import importlib
import inspect
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import cache, cached_property
from pathlib import Path
from typing import Any

import ndcg_spark

PROJECT_ROOT = Path(__file__).resolve().parents[2]
PACKAGE = "ndcg_spark"

MAX_FUNCTION_LINES = 80

_STAND_IN = re.compile(r"#\s*stands in for: \S.*, because \S")

_SECTION = re.compile(r"^(Parameters|Returns|Yields|Raises|Notes|Attributes|Examples|References)\n-+$", re.MULTILINE)

ANYTHING = None
HEAVY = frozenset({"numpy", "pandas", "pyarrow", "pyspark", "scipy"})
CLASSIC_ONLY = frozenset({"rdd", "sparkContext", "_jdf", "_jvm", "_jsc"})


ROOMS = (
    "__main__", "main", "ml", "mlflow", "nights", "reports", "business", "diagnosis", "history", "comparison",
    "retrieval", "clicks", "judgments", "functions", "evaluation", "jobs", "tables", "metrics", "sources", "local",
    "conventions", "core", "errors", "_version",
)  # fmt: skip
"""Top to bottom: each imports itself and what stands behind it. A room that is not among them has to get a place."""


@dataclass(frozen=True)
class Kind:
    """Modules that may import each other, earlier kinds, and `third_party` projects."""

    name: str
    modules: tuple[str, ...]
    third_party: frozenset[str] | None


_FOLDERS = tuple(room for room in ROOMS[4:-2] if room != "tables")
"""Rooms whose `__init__` is empty or light, as whoever imports one of their modules imports it, too."""
KINDS = (
    Kind(
        "light",
        (
            *_FOLDERS, "*.settings", "conventions.*", "core.distances", "core.engine", "core.exact", "core.flag",
            "core.labels", "core.lazy_names", "core.ragged", "core.redaction", "errors", "evaluation.gates",
            "evaluation.rules", "metrics.*", "sources.references", "sources.slices", "_version",
        ),
        frozenset({"numpy"}),
    ),
    Kind("kernels", ("*.kernels", "*.kernels.*", "core.student"), frozenset({"numpy", "scipy"})),
    Kind(
        "tasks",
        (
            "*.tasks", "*.tasks.*", "*.plan", "core.arrow_tables", "core.batches", "core.hashing", "core.row_counts",
            "core.schemas", "core.sums", "evaluation.local", "evaluation.matching", "evaluation.plan_*", "local.*",
            "sources.listing", "sources.local", "sources.parquet*", "sources.stores", "sources.text_files",
        ),
        frozenset({"numpy", "pandas", "pyarrow", "xxhash"}),
    ),
    Kind(
        "frames",
        ("*.frames", "*.frames.*", "core.*", "sources.*"),
        frozenset({"py4j", "pyspark", "numpy", "pandas", "pyarrow"}),
    ),
    Kind("others", ("*",), ANYTHING),
)  # fmt: skip
"""What a module is, by its name below the package: the first that fits. In rooms of features a file is named so."""
# The light modules are all that __init__ imports eagerly; all other names are looked up at first use.
LIGHT = frozenset({f"{PACKAGE}.core.lazy_names", f"{PACKAGE}.errors", f"{PACKAGE}._version"})


def _public_names() -> frozenset[str]:
    """Return the names that `__init__` files re-export, as `ndcg_spark.history.frames.roll_up`."""
    names = {f"{PACKAGE}.ml.NdcgEvaluator", f"{PACKAGE}.ml.with_query_folds", f"{PACKAGE}.mlflow.log_evaluation"}
    for path in (PROJECT_ROOT / PACKAGE).rglob("__init__.py"):
        imports = (node for node in ast.walk(ast.parse(path.read_text("utf-8"))) if isinstance(node, ast.ImportFrom))
        names |= {f"{node.module}.{alias.name}" for node in imports for alias in node.names}
    return frozenset(names)


PUBLIC = _public_names()


@dataclass(frozen=True)
class Source:
    """One parsed file; `module` is its dotted name."""

    module: str
    text: str
    is_package: bool = False

    @cached_property
    def tree(self) -> ast.Module:
        return ast.parse(self.text)

    @cached_property
    def nodes(self) -> list[ast.AST]:
        return list(ast.walk(self.tree))


# ---------------------------------------------------------------------------------------------------- reading


def name_module(path: Path) -> str:
    parts = path.relative_to(PROJECT_ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


@cache
def parse_sources(*folders: str) -> list[Source]:
    """Parse every Python file below the folders; a missing folder has none."""
    paths = sorted(path for folder in folders for path in (PROJECT_ROOT / folder).rglob("*.py"))
    return [Source(name_module(path), path.read_text("utf-8"), path.name == "__init__.py") for path in paths]


def list_imports(source: Source, nodes: Iterator[ast.AST] | None = None) -> Iterator[tuple[int, str]]:
    """Yield (line, dotted name) of every import, also in functions; `from a import b` is `a.b`."""
    for node in source.nodes if nodes is None else nodes:
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                here = source.module.split(".")
                n_up = node.level - source.is_package
                base = ".".join([*here[: len(here) - n_up], *filter(None, [base])])
            yield from ((node.lineno, f"{base}.{alias.name}") for alias in node.names)


def is_type_checking(test: ast.expr) -> bool:
    return ast.unparse(test) in {"TYPE_CHECKING", "typing.TYPE_CHECKING"}


def list_import_statements(body: list[ast.stmt]) -> Iterator[ast.AST]:
    """Yield the statements that run at import: not those of functions, nor those for type checkers."""
    for statement in body:
        if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        if isinstance(statement, ast.If) and is_type_checking(statement.test):
            yield from list_import_statements(statement.orelse)
            continue
        yield statement
        for block in ("body", "orelse", "finalbody"):
            yield from list_import_statements(getattr(statement, block, []))
        for handler in getattr(statement, "handlers", []):
            yield from list_import_statements(handler.body)


def find_room(module: str) -> int | None:
    """Return the position in ROOMS of the room of `ndcg_spark.a.b`, by its `a`; None without one."""
    part = module.split(".")[1]
    return ROOMS.index(part) if part in ROOMS else None


@cache
def find_kind(module: str) -> int:
    """Return the position in KINDS of the kind of a module."""
    name = module.removeprefix(f"{PACKAGE}.")
    return next(at for at, kind in enumerate(KINDS) if any(fnmatchcase(name, module) for module in kind.modules))


def list_own_imports(source: Source, nodes: Iterator[ast.AST] | None = None) -> Iterator[tuple[int, str]]:
    """Yield (line, module) of each import of the package; for a name in a module, that module."""
    for line, name in list_imports(source, nodes):
        if name.split(".")[0] == PACKAGE:
            path = PROJECT_ROOT.joinpath(*name.split("."))
            yield line, name if path.is_dir() or path.with_suffix(".py").is_file() else name.rpartition(".")[0]


# ------------------------------------------------------------------------------------------------------ rules


def find_misplaced_modules(source: Source) -> list[str]:
    if source.module == PACKAGE or find_room(source.module) is not None:
        return []
    return [f"{source.module} has no room: add it to ROOMS"]


def find_upward_imports(source: Source) -> list[str]:
    """Find imports from a higher room, or from the package itself, whose lazy names reach every room."""
    if source.module == PACKAGE:
        return []
    own, findings = find_room(source.module), []
    for line, name in list_own_imports(source):
        room = find_room(name) if "." in name else None
        if room is None:
            findings.append(f"{source.module}:{line} imports {name}, which is a name of the package, not of a room")
        elif own is not None and room < own:
            findings.append(f"{source.module}:{line} imports {name}, which is in a room above")
    return findings


def find_imports_of_later_kinds(source: Source) -> list[str]:
    """Find imports of later kinds of modules, such as a kernel that imports frames.

    In light modules only imports that run when they are imported count.
    """
    if source.module == PACKAGE:
        return []
    own = find_kind(source.module)
    nodes = list_import_statements(source.tree.body) if own == 0 else None
    return [
        f"{source.module}:{line} imports {name}, which is of {KINDS[find_kind(name)].name}"
        for line, name in list_own_imports(source, nodes)
        if name != PACKAGE and find_kind(name) > own
    ]


def find_foreign_imports(source: Source) -> list[str]:
    """Find imports of other projects that the kind of a module must do without."""
    kind = KINDS[-1] if source.module == PACKAGE else KINDS[find_kind(source.module)]
    if kind.third_party is ANYTHING:
        return []
    allowed = frozenset(kind.third_party) | sys.stdlib_module_names | {PACKAGE}
    return [
        f"{source.module}:{line} imports {name}, which {kind.name} must do without"
        for line, name in list_imports(source)
        if name.split(".")[0] not in allowed
    ]


def find_heavy_root_imports(source: Source) -> list[str]:
    """Find modules that `import ndcg_spark` loads besides the standard library and the light modules."""
    if source.module != PACKAGE:
        return []
    return [
        f"{source.module}:{line} imports {name} at once; look it up in __getattr__"
        for line, name in list_imports(source, list_import_statements(source.tree.body))
        if name.split(".")[0] not in sys.stdlib_module_names
        and not any(name == light or name.startswith(f"{light}.") for light in LIGHT)
    ]


def find_classic_only_names(source: Source) -> list[str]:
    """Find uses of what only a classic Spark session has, as `x.rdd` or `getattr(x, "rdd")`."""
    findings = []
    for node in source.nodes:
        name = None
        if isinstance(node, ast.Attribute):
            name = node.attr
        elif isinstance(node, ast.Call) and ast.unparse(node.func) in {"getattr", "hasattr"} and len(node.args) > 1:
            name = node.args[1].value if isinstance(node.args[1], ast.Constant) else None
        if name in CLASSIC_ONLY:
            findings.append(f"{source.module}:{node.lineno} uses {name}, which Spark Connect does not have")
    return findings


def count_code_lines(function: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    """Count the lines from `def` to the end without the docstring, so that explanations are free."""
    n_lines = (function.end_lineno or function.lineno) - function.lineno + 1
    first = function.body[0]
    if ast.get_docstring(function, clean=False) is not None:
        n_lines -= (first.end_lineno or first.lineno) - first.lineno + 1
    return n_lines


def find_long_functions(source: Source) -> list[str]:
    functions = (n for n in source.nodes if isinstance(n, ast.FunctionDef | ast.AsyncFunctionDef))
    return [
        f"{source.module}:{f.lineno} {f.name} has {count_code_lines(f)} lines of code, at most {MAX_FUNCTION_LINES}"
        for f in functions
        if count_code_lines(f) > MAX_FUNCTION_LINES
    ]


def find_internal_sections(source: Source) -> list[str]:
    """Find numpydoc sections in docstrings that users do not import.

    Settings may have them: they are the help of commands.
    """
    if source.module.rpartition(".")[2] in {"settings", "command"}:
        return []
    public = {name.rpartition(".")[2] for name in PUBLIC if name.startswith(f"{source.module}.")}
    findings = []
    for node in source.tree.body:
        for field in (
            ast.walk(node) if isinstance(node, ast.FunctionDef | ast.ClassDef) and node.name not in public else ()
        ):
            if isinstance(field, ast.FunctionDef | ast.ClassDef) and _SECTION.search(ast.get_docstring(field) or ""):
                findings.append(
                    f"{source.module}:{field.lineno} {field.name} has sections, and users do not import it"
                )
    return findings


def find_unpacked_functions(source: Source) -> list[str]:
    """Find functions for workers that do not go through `in_workers`, and factories of such functions."""
    if source.module == f"{PACKAGE}.core.workers":
        return []
    findings = []
    for node in source.nodes:
        if isinstance(node, ast.Attribute) and node.attr in ("mapInArrow", "mapInPandas", "applyInArrow"):
            findings.append(f"{source.module}:{node.lineno}: {node.attr} instead of in_workers(...)")
        elif isinstance(node, ast.FunctionDef) and node.name.startswith("make_") and ".tasks" in source.module:
            findings.append(f"{source.module}:{node.lineno} {node.name}: write a function of (batches, *task)")
    return findings


def find_spelled_labels(source: Source) -> list[str]:
    """Find texts of metrics, cutoffs and segments that are built by hand instead of by `core.labels`."""
    if source.module == f"{PACKAGE}.core.labels":
        return []
    return [
        f"{source.module}:{node.lineno} spells a label: {ast.unparse(node)}; see core/labels.py"
        for node in source.nodes
        if _spells_metric(node)
        or _spells_cutoff(node)
        or (isinstance(node, ast.Constant) and node.value == "overall")
    ]


def _spells_metric(node: ast.AST) -> bool:
    """Check for `f"{metric}@{k}"`, `f"{metric}@all"` and `concat_ws("@", ...)`; `remove @{k}` is not a label."""
    if isinstance(node, ast.JoinedStr):
        shown = "".join(value.value if isinstance(value, ast.Constant) else "{}" for value in node.values)
        return re.search(r"(?<!\s)@\{|\}@all\b", shown) is not None
    if isinstance(node, ast.Constant):
        return "concat_ws('@'" in str(node.value)
    return isinstance(node, ast.Call) and ast.unparse(node).startswith(("F.concat_ws('@'", "concat_ws('@'"))


def _spells_cutoff(node: ast.AST) -> bool:
    """Check for `"all" if k is None else k`, `k or "all"` and `lit("all")`."""
    parts: list[ast.expr] = []
    if isinstance(node, ast.IfExp) and ast.unparse(node.test).endswith((" is None", " is not None")):
        parts = [node.body, node.orelse]
    elif isinstance(node, ast.BoolOp) and re.search(r"\bk$", ast.unparse(node.values[0])):
        parts = node.values[1:]
    elif isinstance(node, ast.Call) and ast.unparse(node.func) in {"F.lit", "lit"}:
        parts = node.args
    return any(isinstance(part, ast.Constant) and part.value == "all" for part in parts)


def find_unexplained_stand_ins(source: Source) -> list[str]:
    """Find replacements in tests that answer in place of what this project relies on, with no reason above them.

    A replacement may fail: that is fault injection. It may do something at a moment and pass the call on to what it
    replaces. One that answers by itself hides what the real thing answers, so it needs a comment above it. One is
    enough for several replacements that follow each other:

        # stands in for: THING, because REASON

    These answer for nothing, and need no reason: constants in capitals, such as sizes, limits and cases; variables
    of the environment, the working folder and times of files; a module that is absent (`setitem(sys.modules, ...,
    None)`). `unittest.mock` is not used: its objects answer anything.
    """
    lines, findings = source.text.splitlines(), []
    for node in source.nodes:
        if isinstance(node, ast.Import | ast.ImportFrom) and "unittest.mock" in ast.unparse(node).replace(
            "unittest import mock", "unittest.mock"
        ):
            findings.append(f"{source.module}:{node.lineno} imports unittest.mock: its objects answer anything")
        elif isinstance(node, ast.Call) and _replaces(node) and not _is_explained(lines, node.lineno):
            name, value = _replacement(node)
            if not (
                name.strip("_").isupper() or _fails(value, source.nodes) or _passes_on(value, name, source.nodes)
            ):
                findings.append(
                    f"{source.module}:{node.lineno} lets something answer for {name}: use the real thing, let it "
                    "fail, or say above it what it stands in for, and why"
                )
    return findings


def _replaces(call: ast.Call) -> bool:
    return isinstance(call.func, ast.Attribute) and call.func.attr == "setattr" and len(call.args) > 1


def _replacement(call: ast.Call) -> tuple[str, ast.expr]:
    """Return the name that is replaced, without its owner, and its replacement."""
    named = call.args[-2]
    name = str(named.value) if isinstance(named, ast.Constant) else ast.unparse(named)
    return name.rpartition(".")[2], call.args[-1]


def _is_explained(lines: list[str], number: int) -> bool:
    """Check for a reason in the comments above a line; other replacements may be in between."""
    for line in reversed(lines[: number - 1]):
        if _STAND_IN.search(line):
            return True
        if not line.strip().startswith("#") and ".setattr(" not in line:
            return False
    return False


def _bodies(value: ast.expr, nodes: list[ast.AST]) -> list[ast.AST]:
    """Return the functions of this file that a replacement refers to, in any scope."""
    if isinstance(value, ast.Lambda):
        return [value]
    named = ast.unparse(value)
    return [node for node in nodes if isinstance(node, ast.FunctionDef) and node.name == named]


def _fails(value: ast.expr, nodes: list[ast.AST]) -> bool:
    return any(isinstance(node, ast.Raise) for body in _bodies(value, nodes) for node in ast.walk(body))


def _passes_on(value: ast.expr, name: str, nodes: list[ast.AST]) -> bool:
    """Check whether a replacement calls the original, by the name under which the file saved it."""
    saved: set[str] = set()
    for node in nodes:
        if isinstance(node, ast.Assign):
            targets, values = (
                side.elts if isinstance(side, ast.Tuple) else [side] for side in (node.targets[0], node.value)
            )
            pairs = zip(targets, values, strict=False)
            saved |= {
                ast.unparse(target)
                for target, source_value in pairs
                if isinstance(source_value, ast.Attribute) and source_value.attr == name
            }
    calls = (node for body in _bodies(value, nodes) for node in ast.walk(body) if isinstance(node, ast.Call))
    return ast.unparse(value) in saved or any(ast.unparse(call.func) in saved for call in calls)


LAYER_RULES = (
    find_misplaced_modules,
    find_upward_imports,
    find_imports_of_later_kinds,
    find_foreign_imports,
    find_heavy_root_imports,
    find_classic_only_names,
    find_unpacked_functions,
    find_spelled_labels,
)
SIZE_RULES = (find_long_functions, find_internal_sections)
TEST_RULES = (find_unexplained_stand_ins,)


PUBLIC_ROOMS = (
    "evaluation", "comparison", "diagnosis", "history", "business", "retrieval", "judgments", "clicks", "functions",
    "reports", "nights",
)  # fmt: skip
WITH_SETTINGS = tuple(room for room in PUBLIC_ROOMS if room not in ("functions", "nights"))
"""The arguments of functions of columns and of a night are all there is."""
OF_ML = ("NdcgEvaluator", "with_query_folds")


def list_public_names(room: str) -> list[str]:
    """Return the public names of a room without importing the objects."""
    return dir(importlib.import_module(f"ndcg_spark.{room}"))


def list_public() -> dict[str, Any]:
    """Return all public objects by name, as `evaluate` and `history.roll_up`; names of the package appear once."""
    objects = {name: getattr(ndcg_spark, name) for name in ndcg_spark.__all__}
    for room in PUBLIC_ROOMS:
        module = importlib.import_module(f"ndcg_spark.{room}")
        objects |= {f"{room}.{name}": getattr(module, name) for name in dir(module) if name not in objects}
    return objects | {f"ml.{name}": getattr(importlib.import_module("ndcg_spark.ml"), name) for name in OF_ML}


def list_public_functions() -> dict[str, Any]:
    return {name: value for name, value in list_public().items() if inspect.isfunction(value)}


def list_type_checking_names(package: str) -> list[str]:
    """Return the names that `__init__` imports for type checkers only."""
    path = Path(inspect.getfile(importlib.import_module(package)))
    (block,) = (
        statement for statement in ast.parse(path.read_text(encoding="utf-8")).body if isinstance(statement, ast.If)
    )
    return sorted(
        alias.name for statement in block.body if isinstance(statement, ast.ImportFrom) for alias in statement.names
    )
