"""One piece of work on a share, done with one of several SMB libraries.

Reads the task as JSON from the file that is named, and writes {"steps": {name: null or what went wrong}, "listed": [names]}.
Files are compared by the caller, who sees both ends.
"""

import json
import os
import sys
import traceback

# A range that crosses the boundary of 32-bit offsets.
FAR = (1 << 32) - 5
FAR_BYTES = b"across 2^32"

# 2001-02-03 04:05:06.1234567 UTC and another time, in nanoseconds: both need all seven digits of a file time.
TIMES = {"written": 981_173_106_123_456_700, "accessed": 981_173_107_765_432_100}


class Smbprotocol:
    """jborean93/smbprotocol, by its high-level part."""

    def __init__(self, task):
        import smbclient

        self.lib = smbclient
        self.options = {"port": task["port"]}
        name = task["server_name"] or task["server"]
        self.root = rf"\\{name}\{task['share']}" + "\\"
        smbclient.register_session(
            name,
            username=task["user"],
            password=task["password"],
            port=task["port"],
            encrypt=task["sealed"],
            auth_protocol="kerberos" if task["kerberos"] else "ntlm",
        )

    def path(self, name):
        return self.root + name.replace("/", "\\")

    def mkdir(self, name):
        self.lib.mkdir(self.path(name), **self.options)

    def put(self, name, content):
        with self.lib.open_file(self.path(name), mode="wb", **self.options) as file:
            file.write(content)

    def get(self, name):
        with self.lib.open_file(self.path(name), mode="rb", **self.options) as file:
            return file.read()

    def list(self, name):
        return [entry.name for entry in self.lib.scandir(self.path(name), **self.options)]

    def rename(self, old, new):
        self.lib.rename(self.path(old), self.path(new), **self.options)

    def delete(self, name):
        self.lib.remove(self.path(name), **self.options)

    def far(self, name):
        with self.lib.open_file(self.path(name), mode="xb+", buffering=0, **self.options) as file:
            file.seek(FAR)
            file.write(FAR_BYTES)
            file.seek(FAR - 4)
            return file.read(len(FAR_BYTES) + 4), self.lib.stat(self.path(name), **self.options).st_size

    def times(self, name):
        path = self.path(name)
        self.lib.utime(path, ns=(TIMES["accessed"], TIMES["written"]), **self.options)
        stat = self.lib.stat(path, **self.options)
        return {"written": stat.st_mtime_ns, "accessed": stat.st_atime_ns}

    def close(self):
        self.lib.reset_connection_cache()


class Impacket:
    """fortra/impacket."""

    DIALECTS = {"2.0.2": 0x0202, "2.1": 0x0210, "3.0": 0x0300, "3.0.2": 0x0302, "3.1.1": 0x0311}

    def __init__(self, task):
        from impacket.smbconnection import SMBConnection

        self.share = task["share"]
        name = task["server_name"] or task["server"]
        self.lib = SMBConnection(
            name, task["server"], sess_port=task["port"], preferredDialect=self.DIALECTS[task["dialect"]]
        )
        if task["kerberos"]:
            self.lib.kerberosLogin(
                task["user"], task["password"], task["domain"], kdcHost=task["kdc"], useCache=True
            )
        else:
            self.lib.login(task["user"], task["password"], task["domain"])

    def path(self, name):
        return "\\" + name.replace("/", "\\")

    def mkdir(self, name):
        self.lib.createDirectory(self.share, self.path(name))

    def put(self, name, content):
        rest = [content]

        def read(count):
            part, rest[0] = rest[0][:count], rest[0][count:]
            return part

        self.lib.putFile(self.share, self.path(name), read)

    def get(self, name):
        parts = []
        self.lib.getFile(self.share, self.path(name), parts.append)
        return b"".join(parts)

    def list(self, name):
        entries = self.lib.listPath(self.share, self.path(name) + "\\*")
        return [entry.get_longname() for entry in entries]

    def rename(self, old, new):
        self.lib.rename(self.share, self.path(old), self.path(new))

    def delete(self, name):
        self.lib.deleteFile(self.share, self.path(name))

    def far(self, name):
        tree = self.lib.connectTree(self.share)
        file = self.lib.createFile(tree, self.path(name))
        self.lib.writeFile(tree, file, FAR_BYTES, offset=FAR)
        content = self.lib.readFile(tree, file, offset=FAR - 4, bytesToRead=len(FAR_BYTES) + 4)
        self.lib.closeFile(tree, file)
        self.lib.disconnectTree(tree)
        size = [e.get_filesize() for e in self.lib.listPath(self.share, self.path(name))]
        return content, size[0]

    def close(self):
        self.lib.logoff()


class Libsmbclient:
    """Samba's own library, by its Python binding."""

    def __init__(self, task):
        import smbc
        from urllib.parse import quote

        self.lib = smbc.Context(
            auth_fn=lambda server, share, workgroup, user, password: (
                task["domain"] or "WORKGROUP",
                task["user"],
                task["password"],
            )
        )
        if task["kerberos"]:
            self.lib.optionUseKerberos = True
            self.lib.optionFallbackAfterKerberos = False
        server = task["server_name"] or task["server"]
        self.root = f"smb://{server}:{task['port']}/{task['share']}/"
        self.quote = quote

    def path(self, name):
        return self.root + self.quote(name)

    def mkdir(self, name):
        self.lib.mkdir(self.path(name), 0o755)

    def put(self, name, content):
        file = self.lib.open(self.path(name), os.O_CREAT | os.O_WRONLY | os.O_TRUNC, 0o644)
        file.write(content)
        file.close()

    def get(self, name):
        file = self.lib.open(self.path(name), os.O_RDONLY)
        content = file.read()
        file.close()
        return content

    def list(self, name):
        return [entry.name for entry in self.lib.opendir(self.path(name)).getdents()]

    def rename(self, old, new):
        self.lib.rename(self.path(old), self.path(new))

    def delete(self, name):
        self.lib.unlink(self.path(name))

    def far(self, name):
        file = self.lib.open(self.path(name), os.O_CREAT | os.O_RDWR, 0o644)
        file.lseek(FAR, os.SEEK_SET)
        file.write(FAR_BYTES)
        file.lseek(FAR - 4, os.SEEK_SET)
        content = file.read(len(FAR_BYTES) + 4)
        size = file.fstat()[6]
        file.close()
        return content, size

    def close(self):
        pass


CLIENTS = {"smbprotocol": Smbprotocol, "impacket": Impacket, "libsmbclient": Libsmbclient}


def local_files(folder):
    """Relative names with `/`, parents before what is in them: (folders, files)."""
    folders, files = [], []
    for at, inner, names in os.walk(folder):
        inner.sort()
        below = os.path.relpath(at, folder)
        join = (lambda name: name) if below == "." else (lambda name: f"{below}/{name}")
        folders += [join(name) for name in inner]
        files += [join(name) for name in sorted(names)]
    return folders, files


class Work:
    """The steps, each of which is tried whatever became of the others."""

    def __init__(self, client, task):
        self.client, self.task, self.listed = client, task, []
        self.folders, self.files = local_files(task["sent"])

    def remote(self, name):
        return f"{self.task['folder']}/{name}"

    def put(self):
        self.client.mkdir(self.task["folder"])
        for name in self.folders:
            self.client.mkdir(self.remote(name))
        for name in self.files:
            with open(os.path.join(self.task["sent"], name), "rb") as file:
                self.client.put(self.remote(name), file.read())

    def list(self):
        self.listed = [name for name in self.client.list(self.task["folder"]) if name not in (".", "..")]

    def get(self):
        for name in self.files:
            to = os.path.join(self.task["back"], name)
            os.makedirs(os.path.dirname(to), exist_ok=True)
            with open(to, "wb") as file:
                file.write(self.client.get(self.remote(name)))

    def rename(self):
        self.client.rename(*map(self.remote, self.task["rename"]))

    def delete(self):
        self.client.delete(self.remote(self.task["delete"]))

    def far(self):
        content, size = self.client.far(self.task["folder"] + ".far")
        assert bytes(content) == bytes(4) + FAR_BYTES, f"read {bytes(content)!r}"
        assert size == FAR + len(FAR_BYTES), f"the size is {size}"

    def times(self):
        got = self.client.times(self.remote(self.task["rename"][1]))
        assert got == TIMES, f"set {TIMES}, got {got}"


def main():
    with open(sys.argv[1]) as file:
        task = json.load(file)
    steps = {}

    def attempt(name, action):
        try:
            action()
            steps[name] = None
        except BaseException as error:
            where = traceback.extract_tb(error.__traceback__)[-1]
            steps[name] = f"{type(error).__name__}: {error} ({os.path.basename(where.filename)}:{where.lineno})"[:400]
            return False
        return True

    work = []
    if attempt("log on", lambda: work.append(Work(CLIENTS[task["client"]](task), task))):
        for name in ["put", "list", "get", "rename", "delete", "far", "times"]:
            if name != "times" or hasattr(work[0].client, "times"):
                attempt(name, getattr(work[0], name))
        attempt("log off", work[0].client.close)
    print(json.dumps({"steps": steps, "listed": work[0].listed if work else []}), flush=True)
    # Libraries keep threads of their own; nothing is left to do for them.
    os._exit(0)


if __name__ == "__main__":
    main()
