"""What the binary needs of the operating system: its loader, its shared libraries, and certificates."""

import dataclasses
import pathlib
import re
import subprocess

from errors import Refused

CERTIFICATES = pathlib.Path("/usr/share/ca-certificates/mozilla")


@dataclasses.dataclass(frozen=True)
class OsPackage:
    """A package of the distribution from which files of the image come."""

    name: str
    version: str
    distribution: str
    architecture: str
    copyright: str


def output(*command):
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        raise Refused(f"{' '.join(command)} failed: {(done.stderr or done.stdout).strip()}")
    return done.stdout


def needed(binary):
    """Paths of the loader and of every shared library, as the loader of this machine finds them."""
    headers = output("readelf", "--program-headers", "--wide", str(binary))
    loader = re.search(r"Requesting program interpreter: (\S+)\]", headers)
    if not loader:
        return []
    listed = output(loader[1], "--list", str(binary))
    if "not found" in listed:
        raise Refused(f"{binary} needs libraries that are not here:\n{listed}")
    libraries = re.findall(r"=> (/\S+) \(", listed)
    return sorted({loader[1], *libraries})


def certificates():
    """The certification authorities of the distribution. Those that an administrator added to this machine stay out."""
    if not CERTIFICATES.is_dir():
        raise Refused(f"{CERTIFICATES} is missing: apt-get install ca-certificates")
    return "".join(path.read_text().strip() + "\n" for path in sorted(CERTIFICATES.glob("*.crt")))


def release():
    """What /etc/os-release says."""
    lines = pathlib.Path("/etc/os-release").read_text().splitlines()
    return {key: value.strip('"') for key, _, value in (line.partition("=") for line in lines)}


def packages(paths):
    """The packages of Debian or Ubuntu that own these files, and that of the certificates."""
    system = release()
    distribution = f"{system.get('ID', '')}-{system.get('VERSION_ID', '')}"
    names = {"ca-certificates:all"}
    for path in paths:
        # Since /lib is a link to /usr/lib, a package may list a file under either name.
        both = [path, path.removeprefix("/usr") if path.startswith("/usr/") else f"/usr{path}"]
        real = str(pathlib.Path(path).resolve())
        owners = [owner for candidate in [*both, real] for owner in owners_of(candidate)]
        if not owners:
            raise Refused(f"no package owns {path}: build the image on Debian or Ubuntu, or with deploy/Dockerfile")
        names.add(owners[0])
    found = []
    for name in sorted(names):
        fields = output(
            "dpkg-query", "--show", "--showformat=${Version} ${Architecture}", name.removesuffix(":all")
        ).split()
        plain = name.split(":")[0]
        found.append(OsPackage(plain, fields[0], distribution, fields[1], f"/usr/share/doc/{plain}/copyright"))
    return found


def owners_of(path):
    done = subprocess.run(["dpkg-query", "--search", path], capture_output=True, text=True)
    return [line.rsplit(": ", 1)[0] for line in done.stdout.splitlines() if line.endswith(f" {path}")]
