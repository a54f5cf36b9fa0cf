"""The architecture as the tree shows it: imports point one way, and the base dependencies are enough to import."""

import ast
import subprocess
import sys
from importlib import metadata
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

import lformer

PACKAGE = Path(lformer.__file__).parent
# A layer may import itself and what stands before it. `data` stands beside `models`: neither knows the other.
LAYERS = ["algebra", "kernels", "nn", "models", "train", "studies", "cli"]
MAY_IMPORT = {layer: set(LAYERS[: i + 1]) for i, layer in enumerate(LAYERS)}
MAY_IMPORT["data"] = {"data"}
for later in ("train", "studies", "cli"):
    MAY_IMPORT[later].add("data")

MODULES = sorted(
    ".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts).removesuffix(".__init__")
    for path in PACKAGE.rglob("*.py")
)


def layer_of(module: str) -> str | None:
    """The layer of a module below lformer; None for the package itself and its version."""
    parts = module.split(".")
    return parts[1] if len(parts) > 1 and parts[1] in MAY_IMPORT else None


def imported_modules(source: str) -> set[str]:
    found = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "relative import: write the full name, so that the direction can be seen"
            found |= {f"{node.module}.{alias.name}" for alias in node.names}
    return {name for name in found if name.split(".")[0] == "lformer"}


def wrong_way(module: str, source: str) -> list[str]:
    layer = layer_of(module)
    if layer is None:
        return []
    targets = {name: layer_of(name) for name in imported_modules(source)}
    return [name for name, target in targets.items() if target is not None and target not in MAY_IMPORT[layer]]


@pytest.mark.parametrize("module", MODULES)
def test_imports_point_one_way(module: str) -> None:
    path = PACKAGE.parent / Path(*module.split("."))
    source = (path / "__init__.py" if path.is_dir() else path.with_suffix(".py")).read_text()
    assert wrong_way(module, source) == []


def test_a_wrong_import_would_be_seen() -> None:
    assert wrong_way("lformer.algebra.svd", "from lformer.nn import LLinear") == ["lformer.nn.LLinear"]
    assert wrong_way("lformer.data.text", "import lformer.models") == ["lformer.models"]
    assert wrong_way("lformer.nn.linear", "from lformer.algebra import lproduct") == []


# Runs in a fresh interpreter whose path is the standard library, the package, and the base dependencies alone.
IMPORT_EVERYTHING = """
import importlib, importlib.util, sys
sys.path[:0] = sys.argv[1:3]
assert importlib.util.find_spec("torch") and not importlib.util.find_spec("scipy"), sys.path
failures = []
for module in sys.argv[3:]:
    try:
        importlib.import_module(module)
    except ImportError as error:
        if "lformer[" not in str(error):  # an optional part must say which extra it needs
            failures.append(f"{module}: {error}")
print("\\n".join(failures))
sys.exit(bool(failures))
"""


def base_distributions() -> set[str]:
    """The distributions that `pip install lformer` without an extra would bring."""
    found: set[str] = set()
    waiting = [Requirement("lformer")]
    while waiting:
        requirement = waiting.pop()
        name = canonicalize_name(requirement.name)
        if name in found:
            continue
        try:
            requires = metadata.requires(name) or []
        except metadata.PackageNotFoundError:
            continue  # for another platform or Python
        found.add(name)
        for text in requires:
            inner = Requirement(text)
            if inner.marker is None or any(inner.marker.evaluate({"extra": e}) for e in (requirement.extras or {""})):
                waiting.append(inner)
    return found


def test_every_module_imports_with_the_base_dependencies_or_names_its_extra(tmp_path: Path) -> None:
    for name in base_distributions():
        distribution = metadata.distribution(name)
        for entry in {file.parts[0] for file in distribution.files or []} - {"..", "__pycache__"}:
            link = tmp_path / entry
            if not link.exists():
                link.symlink_to(Path(str(distribution.locate_file(entry))))
    run = subprocess.run(
        [sys.executable, "-S", "-c", IMPORT_EVERYTHING, str(PACKAGE.parent), str(tmp_path), *MODULES],
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stdout + run.stderr


def test_what_the_tests_compare_with_is_installed() -> None:
    """Tests skip themselves where it is missing; here, where everything runs, nothing may."""
    asked = [Requirement(text) for text in metadata.requires("lformer") or []]
    names = [each.name for each in asked if each.marker and each.marker.evaluate({"extra": "dev"})]
    assert "mprod-package" in names
    missing = []
    for name in names:
        try:
            metadata.version(name)
        except metadata.PackageNotFoundError:
            missing.append(name)
    assert not missing, "pip install -e '.[dev]'"
