"""The lab's image: built once from Debian packages, kept under the digest of its recipe.

root.erofs   the nodes' shared read-only system
vmlinux      Debian's stock kernel, uncompressed where possible (boots 4 s faster without KVM)
initrd.cpio  the modules to reach the former, and the nodes' first program
"""

from __future__ import annotations

import lzma
import os
import shlex
import shutil
import struct
import subprocess
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from rdmabench.errors import LabError
from rdmabench.lab import host, paths, recipe
from rdmabench.lab.recipe import Recipe

_BUILD_DEADLINE_S = 900.0
_SCRATCH_BYTES = 4 << 30
_TERMINATE_S = 20.0  # mmdebstrap unmounts and removes its tree
_STAGED = ("root.erofs", "vmlinuz", "initrd.cpio", "release")
_XZ_MAGIC = b"\xfd7zXZ\x00"


@dataclass(frozen=True)
class Image:
    """A finished image; its directory never changes again."""

    directory: Path
    digest: str

    @property
    def root(self) -> Path:
        return self.directory / "root.erofs"

    @property
    def kernel(self) -> Path:
        return self.directory / "vmlinux"

    @property
    def initrd(self) -> Path:
        return self.directory / "initrd.cpio"


def cached(digest: str) -> Image:
    """The image of that digest, whether or not it exists."""
    return Image(directory=paths.image_cache() / f"image-{digest}", digest=digest)


def ensure(progress: Callable[[str], None]) -> Image:
    """The image of the present recipe, built if the cache lacks it; one builder at a time."""
    wanted = recipe.current()
    cache = paths.image_cache()
    image = cached(wanted.digest)
    if image.directory.is_dir():
        return image
    with paths.locked(cache / "build.lock"):
        if image.directory.is_dir():
            return image
        for abandoned in cache.glob("building-*"):
            shutil.rmtree(abandoned, ignore_errors=True)
        progress(f"building the image from Debian {wanted.release} (once, about a minute)")
        started = time.monotonic()
        _build(wanted, image.directory)
        progress(f"image built in {time.monotonic() - started:.0f} s")
    return image


def _build(wanted: Recipe, destination: Path) -> None:
    building = Path(tempfile.mkdtemp(prefix="building-", dir=destination.parent))
    try:
        _bootstrap(wanted, building)
        bzimage = building / "vmlinuz"
        (building / "vmlinux").write_bytes(uncompressed_kernel(bzimage.read_bytes()))
        bzimage.unlink()
        building.rename(destination)
    except OSError as exc:
        raise LabError(
            f"the image could not be built: {exc}",
            remedy=f"1.5 GB free in {tempfile.gettempdir()} and 0.5 GB in {destination.parent}",
        ) from exc
    finally:
        shutil.rmtree(building, ignore_errors=True)


def _bootstrap(wanted: Recipe, building: Path) -> None:
    settings = building / "apt.conf"
    settings.write_text(recipe.apt_settings(_apt_config()), encoding="utf-8")
    log = building / "log"
    status = _run_logged(
        _bootstrap_argv(wanted, building, settings),
        sources=recipe.debian_sources(Path("/etc/apt"), wanted.release),
        log=log,
    )
    if status != 0:
        raise LabError(
            f"mmdebstrap could not build the image (exit {status}):\n{_tail(log)}",
            remedy="see that `apt-get update` works here, then try again",
        )
    settings.unlink()
    log.unlink()


def _bootstrap_argv(wanted: Recipe, building: Path, settings: Path) -> list[str]:
    hook = shlex.quote(str(recipe.GUEST_FILES / "build-root"))
    downloads = (
        f"--customize-hook=download /.stage/{name} {shlex.quote(str(building / name))}"
        for name in _STAGED
    )
    return [
        "mmdebstrap",
        "--variant=minbase",
        "--format=null",
        f"--include={','.join(wanted.packages)}",
        '--aptopt=Acquire::Languages "none"',
        f"--aptopt={settings}",
        "--dpkgopt=force-unsafe-io",
        *(
            f"--dpkgopt=path-exclude=/usr/share/{kind}/*"
            for kind in ("doc", "man", "locale", "info", "lintian")
        ),
        f'--customize-hook=sh {hook} "$1"',
        *downloads,
        wanted.release,
        "/dev/null",
        "-",
    ]


def _apt_config() -> str:
    answer = subprocess.run(
        ["apt-config", "dump"],  # noqa: S607
        capture_output=True,
        text=True,
        check=False,
        timeout=30,
    )
    return answer.stdout


def _run_logged(argv: list[str], *, sources: str, log: Path) -> int:
    """Runs to the end or to the deadline, and leaves nothing running whatever interrupts it."""
    environment = {"TMPDIR": _scratch(), **os.environ, "PATH": host.search_path(), "LC_ALL": "C"}
    with (
        log.open("wb") as output,
        tempfile.TemporaryFile() as sources_file,
    ):
        sources_file.write(sources.encode())
        sources_file.seek(0)
        process = subprocess.Popen(
            argv, stdin=sources_file, stdout=output, stderr=subprocess.STDOUT, env=environment
        )
        try:
            return process.wait(_BUILD_DEADLINE_S)
        except subprocess.TimeoutExpired as exc:
            raise LabError(f"no image after {_BUILD_DEADLINE_S:.0f} s:\n{_tail(log)}") from exc
        finally:
            _terminate(process)


def _scratch() -> str:
    """Where the tree is unpacked, if TMPDIR does not say: in memory when there is plenty of it."""
    shared = "/dev/shm"  # noqa: S108
    try:
        allowed = not os.statvfs(shared).f_flag & os.ST_NOEXEC
        free = shutil.disk_usage(shared).free if allowed else 0
    except OSError:
        free = 0
    available = os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return shared if min(free, available) >= _SCRATCH_BYTES else tempfile.gettempdir()


def _terminate(process: subprocess.Popen[bytes]) -> None:
    if process.poll() is not None:
        return
    process.terminate()
    try:
        process.wait(_TERMINATE_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _tail(log: Path, lines: int = 15) -> str:
    text = log.read_text(encoding="utf-8", errors="replace")
    return "\n".join(text.splitlines()[-lines:])


def uncompressed_kernel(bzimage: bytes) -> bytes:
    """The ELF image inside a bzImage (Linux' boot protocol, section "The real-mode kernel header").

    A kernel not compressed with xz is returned as it is: it boots as well, only more slowly.
    """
    if bzimage[0x202:0x206] != b"HdrS":
        raise LabError("Debian's kernel package holds no bzImage that this lab can boot")
    setup_sectors = bzimage[0x1F1] or 4
    offset, length = struct.unpack_from("<II", bzimage, 0x248)
    start = (setup_sectors + 1) * 512 + offset
    payload = bzimage[start : start + length]
    if not payload.startswith(_XZ_MAGIC):
        return bzimage
    try:
        return lzma.LZMADecompressor().decompress(payload)
    except lzma.LZMAError as exc:
        raise LabError(f"Debian's kernel cannot be unpacked: {exc}") from exc
