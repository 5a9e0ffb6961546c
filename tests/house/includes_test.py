"""A planted include that runs backwards is found, and named with what to do instead."""

import tempfile
import unittest
from pathlib import Path

import includes


class Tree(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = Path(folder.name)

    def plant(self, path, *lines):
        file = self.root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("\n".join(lines) + "\n")

    def complaints_about(self, path, *lines):
        self.plant(path, *lines)
        return includes.check(self.root)


class BackwardIncludes(Tree):
    BACKWARD = [
        ("proto/types.cc", '#include "daemon/core/view.h"', "runs backwards"),
        ("proto/frame.h", '#include "common.pb.h"', "protobuf is not for this folder"),
        ("proto/frame.h", "#include <thread>", "no place here"),
        ("transport/transport.h", '#include "transport/ucx/ucx_transport.h"', "names a body"),
        ("transport/ucx/endpoint.cc", '#include "transport/loopback/loopback.h"', "runs backwards"),
        ("transport/reducer.h", "#include <cuda_runtime.h>", "cuda is not for this folder"),
        ("transport/cuda/fold.cu", '#include "daemon/core/op.h"', "has no opinions"),
        ("transport/ucx/endpoint.cc", '#include "daemon/control/jobs.h"', "has no opinions"),
        ("transport/loopback/loopback.cc", "#include <zmq.hpp>", "zmq is not for this folder"),
        ("transport/ucx/endpoint.cc", '#include "proto/wire.h"', "runs backwards"),
        ("daemon/core/op.cc", '#include "proto/wire.h"', "The core is pure"),
        ("daemon/core/op.cc", '#include "peer.pb.h"', "The core is pure"),
        ("daemon/core/op.cc", '#include "transport/transport.h"', "The core is pure"),
        ("daemon/core/op.cc", '#include "daemon/control/jobs.h"', "The core is pure"),
        ("daemon/core/op.cc", "#include <mutex>", "The core is pure"),
        ("daemon/core/op.cc", "#include <chrono>", "The core is pure"),
        ("daemon/core/op.cc", "#include <unistd.h>", "The core is pure"),
        ("daemon/core/op.cc", "#include <sys/mman.h>", "The core is pure"),
        ("daemon/core/op.cc", "  #  include <spdlog/spdlog.h>", "The core is pure"),
        ("daemon/data/thread.cc", '#include "transport/ucx/ucx_transport.h"', "alone choose a body"),
        ("daemon/data/thread.cc", "#include <ucp/api/ucp.h>", "ucx is not for this folder"),
        ("daemon/main.cc", '#include "client/session.h"', "runs backwards"),
        ("client/session.cc", '#include "daemon/core/view.h"', "runs backwards"),
        ("client/session.cc", '#include "transport/shm/segment.h"', "runs backwards"),
        ("client/include/gradring/gradring.h", "#include <zmq.h>", "zmq is not for this folder"),
        ("client/examples/a.cc", '#include "client/session.h"', "runs backwards"),
        ("client/python/binding/a.cc", '#include "client/src/session/session.h"', "runs backwards"),
        ("tools/ctl/main.cc", '#include "client/session.h"', "runs backwards"),
        ("tools/ctl/main.cc", '#include "daemon/config.h"', "runs backwards"),
        ("daemon/config.cc", '#include "tests/core/fake.h"', "nobody includes tests"),
        ("daemon/config.cc", '#include "config.h"', "from the root"),
        ("daemon/config.cc", '#include "../proto/types.h"', "from the root"),
        ("daemon/config.cc", "#include <toml++/toml.h>", "no library that the house knows"),
    ]

    def test_each_is_found_and_named(self):
        for path, line, words in self.BACKWARD:
            with self.subTest(path=path, line=line):
                found = self.complaints_about(path, "#pragma once", line)
                self.assertEqual(len(found), 1, found)
                self.assertTrue(found[0].startswith(f"{path}:2: {line.strip()}: "), found[0])
                self.assertIn(words, found[0])
                (self.root / path).unlink()


class ForwardIncludes(Tree):
    FORWARD = [
        ("proto/wire.cc", '#include "peer.pb.h"'),
        ("proto/types.cc", "#include <fmt/format.h>"),
        ("daemon/core/op.cc", '#include "proto/frame.h"'),
        ("daemon/core/op.cc", "#include <vector>"),
        ("transport/ucx/endpoint.cc", '#include "transport/ucx/worker.h"'),
        ("transport/ucx/endpoint.cc", "#include <ucp/api/ucp.h>"),
        ("transport/ucx/endpoint.cc", '#include "transport/transport.h"'),
        ("transport/simd/reduce.cc", "#include <hwy/highway.h>"),
        ("transport/checksum/checksum.cc", "#include <isa-l/crc.h>"),
        ("transport/cuda/fold.cu", "#include <cuda_runtime.h>"),
        ("daemon/main.cc", '#include "transport/cuda/gpus.h"'),
        ("daemon/lanes.cc", '#include "transport/ucx/ucx_transport.h"'),
        ("daemon/data/thread.cc", '#include "transport/transport.h"'),
        ("daemon/data/thread.cc", "#include <thread>"),
        ("client/session.cc", '#include "client.pb.h"'),
        ("client/session.cc", "#include <gradring/gradring.h>"),
        ("tools/perf/main.cc", "#include <gradring/gradring.hpp>"),
        ("tests/core/op_test.cc", '#include "tests/core/stories.h"'),
        ("tests/daemon/e.cc", '#include "daemon/data/thread.h"'),
    ]

    def test_none_is_complained_about(self):
        for path, line in self.FORWARD:
            with self.subTest(path=path, line=line):
                self.assertEqual(self.complaints_about(path, line), [])


if __name__ == "__main__":
    unittest.main()
