"""What the lab's image is made of; the digest of it names the image in the cache.

The packages come from where this machine's own packages come from: the apt sources of its Debian
release, with its apt's proxy and TLS settings.
"""

from __future__ import annotations

import hashlib
import json
import platform
import re
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path

from rdmabench.errors import SetupError

GUEST_FILES = Path(__file__).parent / "guest"

_FORMAT = 1  # raised when image.py turns the same recipe into something else
_PACKAGES = (
    "python3",
    "python3-pyverbs",
    "rdma-core",
    "ibverbs-utils",
    "ibverbs-providers",
    "perftest",
    "openssh-server",
    "iproute2",
    "kmod",
    "ethtool",
    "procps",
    "busybox-static",
    "openmpi-bin",
    "python3-mpi4py",
    "ucx-utils",
    "libucx0",
)
_APT_SETTINGS = re.compile(r"Acquire::(https?(::|-)|Retries\b|ForceIPv)")


@dataclass(frozen=True)
class Recipe:
    """Everything that decides what a node boots from, except the packages' versions of the day."""

    release: str  # Debian's code name
    architecture: str
    packages: tuple[str, ...]
    guest_files: tuple[tuple[str, str], ...]  # name, SHA-256

    @property
    def digest(self) -> str:
        text = json.dumps({"format": _FORMAT, **asdict(self)}, sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:16]


def current(os_release: Path = Path("/etc/os-release")) -> Recipe:
    files = sorted(path for path in GUEST_FILES.iterdir() if path.is_file())
    return Recipe(
        release=debian_release(os_release),
        architecture=platform.machine(),
        packages=_PACKAGES,
        guest_files=tuple(
            (path.name, hashlib.sha256(path.read_bytes()).hexdigest()) for path in files
        ),
    )


def debian_release(os_release: Path) -> str:
    try:
        lines = os_release.read_text(encoding="utf-8").splitlines()
    except OSError as exc:
        raise SetupError(f"cannot tell this machine's release: {os_release}: {exc}") from exc
    fields = {key: value.strip("\"'") for key, _, value in (line.partition("=") for line in lines)}
    codename = fields.get("VERSION_CODENAME", "")
    if fields.get("ID") != "debian" or not codename:
        raise SetupError(
            f"the soft-RoCE lab is built from Debian's packages, this is {fields.get('ID') or '?'}",
            remedy="run it on Debian (a container with /dev/kvm will do)",
        )
    return codename


def debian_sources(apt: Path, release: str) -> str:
    """The apt sources of that release as one deb822 text; foreign archives are left out."""
    files = [apt / "sources.list", *sorted((apt / "sources.list.d").glob("*"))]
    stanzas = [
        stanza
        for path in files
        if path.suffix in {".list", ".sources"} and path.is_file()
        for stanza in _stanzas(path)
        if _is_debian(stanza, release)
    ]
    if not stanzas:
        raise SetupError(
            f"apt has no source of Debian {release}'s main component in {apt}",
            remedy="check /etc/apt/sources.list and /etc/apt/sources.list.d",
        )
    return "\n\n".join(stanzas) + "\n"


def apt_settings(dump: str) -> str:
    """The lines of `apt-config dump` that say how to reach an archive."""
    return "".join(f"{line}\n" for line in dump.splitlines() if _APT_SETTINGS.match(line))


def _stanzas(path: Path) -> Iterable[str]:
    lines = [
        line
        for line in path.read_text(encoding="utf-8", errors="replace").splitlines()
        if not line.lstrip().startswith("#")
    ]
    if path.suffix == ".list":
        return [stanza for line in lines if (stanza := _from_one_line(line))]
    return [block.strip("\n") for block in re.split(r"\n\s*\n", "\n".join(lines)) if block.strip()]


def _from_one_line(line: str) -> str:
    match = re.fullmatch(
        r"\s*deb\s+(?:\[(?P<options>[^]]*)\]\s+)?(?P<uri>\S+)\s+(?P<suite>\S+)(?P<rest>[^#]*)(#.*)?",
        line,
    )
    if match is None:
        return ""
    options = (option.partition("=") for option in (match["options"] or "").split())
    fields = {
        "Types": "deb",
        "URIs": match["uri"],
        "Suites": match["suite"],
        "Components": " ".join(match["rest"].split()),
        **{_FIELD_OF_OPTION.get(key, key): value.replace(",", " ") for key, _, value in options},
    }
    return "\n".join(f"{key}: {value}" for key, value in fields.items())


_FIELD_OF_OPTION = {"arch": "Architectures", "lang": "Languages", "target": "Targets"}


def _is_debian(stanza: str, release: str) -> bool:
    fields: dict[str, str] = {}
    for name, value in re.findall(r"(?m)^([A-Za-z-]+):[ \t]*(.*(?:\n[ \t].*)*)", stanza):
        fields[name.lower()] = value
    suites = set(fields.get("suites", "").split())
    debian = {release, f"{release}-updates", f"{release}-security"}
    return (
        "deb" in fields.get("types", "").split()
        and fields.get("enabled", "yes").strip().lower() not in {"no", "false", "0"}
        and bool(suites)
        and suites <= debian
        and "main" in fields.get("components", "").split()
    )
