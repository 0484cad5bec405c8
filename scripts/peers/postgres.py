"""A Postgres of its own: its defaults, so each commit is synced to the disk before it is answered."""

import os
import pwd
import secrets
import shutil
import signal
import subprocess

from .errors import Failed
from .processes import free_ports

# Postgres refuses to run as root.
USER_FOR_ROOT = "nobody"
# Each worker of DBOS has a pool of 20: the default of 100 is too few for a machine with more than four cores.
CONNECTIONS_MAX = 1_000


class Postgres:
    """A running server with an empty store below `directory`, and a password that only this run knows."""

    def __init__(self, packages, processes, directory):
        (self._port,) = free_ports(1)
        self._password = secrets.token_hex(16)
        identity = self._identity()
        directory.mkdir()
        password_file = directory / "password"
        password_file.write_text(self._password)
        store = directory / "store"
        store.mkdir(mode=0o700)
        for path in (directory, password_file, store):
            if identity:
                shutil.chown(path, identity["user"], identity["group"])
        self._initialize(packages, store, password_file, identity)
        settings = {"listen_addresses": "127.0.0.1", "port": self._port, "unix_socket_directories": "",
                    "max_connections": CONNECTIONS_MAX}
        options = [word for name, value in settings.items() for word in ("-c", f"{name}={value}")]
        # SIGINT ends it without waiting for its clients.
        self.process = processes.start("postgres", [packages.postgres("postgres"), "-D", store, *options],
                                       directory=directory, end_signal=signal.SIGINT, identity=identity)
        self.process.wait_for("accepts connections", lambda text: "ready to accept connections" in text)

    def url(self, database):
        """Where clients find a database."""
        return f"postgresql://postgres:{self._password}@127.0.0.1:{self._port}/{database}"

    @staticmethod
    def _identity():
        """The user that it runs as, if not this one."""
        if os.geteuid():
            return None
        try:
            user = pwd.getpwnam(USER_FOR_ROOT)
        except KeyError as error:
            raise Failed(f"Postgres refuses to run as root, and there is no user {USER_FOR_ROOT}; run this as a user "
                         "that is not root") from error
        return {"user": user.pw_uid, "group": user.pw_gid, "extra_groups": []}

    @staticmethod
    def _initialize(packages, store, password_file, identity):
        # The locale is Postgres' own, so that the speed of comparisons does not depend on the machine's.
        command = [packages.postgres("initdb"), "--pgdata", store, "--username", "postgres", "--pwfile", password_file,
                   "--auth", "scram-sha-256", "--encoding", "UTF8", "--locale-provider", "builtin", "--locale",
                   "C.UTF-8"]
        try:
            result = subprocess.run([str(part) for part in command], cwd=store.parent, stdin=subprocess.DEVNULL,
                                    env={"PATH": os.environ["PATH"], "LC_ALL": "C"}, capture_output=True, text=True,
                                    check=False, **(identity or {}))
        except OSError as error:
            raise Failed(f"initdb does not start: {error}; run this as a user that is not root, in a directory that "
                         "this user may read") from error
        if result.returncode:
            raise Failed(f"initdb failed: {result.stderr.strip()[-800:]}\n"
                         "if it lacks a permission, run this as a user that is not root")
