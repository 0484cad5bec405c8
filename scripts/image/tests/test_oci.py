"""Layouts: the same files give the same bytes, and what was changed afterwards is refused."""

import json
import os
import pathlib
import sys
import tarfile
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))

import oci  # noqa: E402
from errors import Refused  # noqa: E402


class OciTest(unittest.TestCase):
    def setUp(self):
        scratch = tempfile.TemporaryDirectory()
        self.addCleanup(scratch.cleanup)
        self.scratch = pathlib.Path(scratch.name)

    def files(self, name, contents="contents"):
        folder = self.scratch / name
        (folder / "usr/bin").mkdir(parents=True)
        (folder / "usr/bin/program").write_text(contents)
        (folder / "usr/bin/program").chmod(0o755)
        return folder

    def layout(self, name, files, architecture="amd64", **labels):
        layout = oci.Layout(self.scratch / name)
        labels = {"org.opencontainers.image.version": "1.0.0", **labels}
        image = {
            "architecture": architecture,
            "created": "2026-01-31T00:00:00Z",
            "seconds": 1769817600,
            "user": "65532:65532",
            "entrypoint": ["/usr/bin/program"],
            "labels": labels,
            "tag": "ailoop:dev",
        }
        return layout, oci.write(files, layout, image)

    def test_same_files_at_another_time_and_place_give_the_same_digest(self):
        first, second = self.files("a"), self.files("b")
        os.utime(second / "usr/bin/program", (1, 1))
        os.chown(second / "usr/bin/program", os.getuid(), os.getgid())
        digests = {self.layout(f"layout-{folder.name}", folder)[1]["digest"] for folder in (first, second)}
        self.assertEqual(len(digests), 1)
        self.assertNotIn(self.layout("other", self.files("c", "other"))[1]["digest"], digests)

    def test_mode_belongs_to_the_digest(self):
        folder = self.files("a")
        before = self.layout("before", folder)[1]["digest"]
        (folder / "usr/bin/program").chmod(0o644)
        self.assertNotEqual(before, self.layout("after", folder)[1]["digest"])

    def test_unpacked_layout_has_the_files_and_the_configuration(self):
        layout, _ = self.layout("layout", self.files("a"))
        config = oci.unpack(layout, self.scratch / "unpacked")
        program = self.scratch / "unpacked/usr/bin/program"
        self.assertEqual((program.read_text(), program.stat().st_mode & 0o777), ("contents", 0o755))
        self.assertEqual((config["config"]["User"], config["architecture"]), ("65532:65532", "amd64"))

    def test_changed_blob_is_refused(self):
        layout, descriptor = self.layout("layout", self.files("a"))
        layer = json.loads(layout.read(descriptor))["layers"][0]
        data = bytearray(layout.path(layer["digest"]).read_bytes())
        data[-1] ^= 1
        layout.path(layer["digest"]).write_bytes(data)
        with self.assertRaisesRegex(Refused, layer["digest"]):
            oci.unpack(layout, self.scratch / "unpacked")

    def test_joined_layout_names_each_platform_once(self):
        files = self.files("a")
        amd64, arm64 = self.layout("amd64", files)[0], self.layout("arm64", files, "arm64")[0]
        joined = oci.Layout(self.scratch / "joined")
        oci.join([arm64, amd64], joined)
        self.assertEqual([found["platform"]["architecture"] for found in joined.manifests()], ["amd64", "arm64"])
        for descriptor in joined.manifests():
            manifest = json.loads(joined.read(descriptor))
            self.assertTrue(all(joined.read(blob) for blob in [manifest["config"], *manifest["layers"]]))
        with self.assertRaisesRegex(Refused, "two of the layouts"):
            oci.join([amd64, amd64], oci.Layout(self.scratch / "twice"))

    def test_images_of_different_commits_are_not_joined(self):
        files = self.files("a")
        revision = "org.opencontainers.image.revision"
        amd64 = self.layout("amd64", files, **{revision: "a"})[0]
        arm64 = self.layout("arm64", files, "arm64", **{revision: "b"})[0]
        with self.assertRaisesRegex(Refused, "different sources"):
            oci.join([amd64, arm64], oci.Layout(self.scratch / "joined"))

    def test_archive_has_the_layout_and_the_list_of_docker(self):
        layout, descriptor = self.layout("layout", self.files("a"))
        oci.archive(layout, descriptor, ["ailoop:dev"], self.scratch / "image.tar")
        with tarfile.open(self.scratch / "image.tar") as archive:
            listed = json.load(archive.extractfile("manifest.json"))
            names = set(archive.getnames())
        self.assertEqual(listed[0]["RepoTags"], ["ailoop:dev"])
        self.assertLessEqual({listed[0]["Config"], *listed[0]["Layers"], "oci-layout", "index.json"}, names)


if __name__ == "__main__":
    unittest.main()
