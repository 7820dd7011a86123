"""Each checker of tools/tidy catches what it is for, and lets good code pass.

A test writes a small tree, runs the checker on it and looks at its findings.
"""

import os
import shutil
import subprocess
import sys
import tempfile
import unittest

ROOT = os.path.abspath(os.path.join(os.path.dirname(__file__), "..", ".."))

GOOD_HEADER = """// A mutex for the tests of the checkers.

#ifndef FIRNKV_PROTO_BASE_GOOD_H_
#define FIRNKV_PROTO_BASE_GOOD_H_

#include <string>

namespace firnkv {

class Good {
 public:
  // std::mutex and sleep() in a comment are no findings.
  std::string Text() const { return "std::mutex; sleep(1); it's"; }
};

}  // namespace firnkv

#endif  // FIRNKV_PROTO_BASE_GOOD_H_
"""


class CheckerTest(unittest.TestCase):

    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)

    def write(self, path, text):
        absolute = os.path.join(self.folder.name, path)
        os.makedirs(os.path.dirname(absolute), exist_ok=True)
        with open(absolute, "w", encoding="utf-8") as file:
            file.write(text)

    def source(self, path, text):
        """The only source of its top folder, and listed."""
        shutil.rmtree(os.path.join(self.folder.name, path.split("/")[0]),
                      ignore_errors=True)
        self.write(path, text)
        folder, name = os.path.split(path)
        self.write(f"{folder}/CMakeLists.txt", f"firnkv_library(SRCS {name})")

    def findings(self, checker):
        run = subprocess.run(
            [sys.executable, "-B", f"{ROOT}/tools/tidy/{checker}.py",
             "--root", self.folder.name],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.assertIn(run.returncode, (0, 1), run.stderr)
        self.assertEqual(run.returncode == 1, run.stdout != "")
        return run.stdout

    def assert_finding(self, checker, place, words):
        found = self.findings(checker)
        self.assertTrue(
            any(line.startswith(place + ":") and words in line
                for line in found.split("\n")),
            f"no finding at {place} about '{words}' in:\n{found}")

    def assert_clean(self, checker):
        self.assertEqual(self.findings(checker), "")


class LayersTest(CheckerTest):

    def includes(self, path, *included):
        self.source(path, "".join(f"#include {i}\n" for i in included))

    def test_the_order_and_the_boundaries_let_lower_layers_through(self):
        self.includes("server/node/node.cc", '"server/tier/tier.h"',
                      '"client/transport/transport.h"', '"proto/base/id.h"',
                      '"absl/status/status.h"', "<vector>")
        self.includes("client/catalog_client.cc", '"proto/catalog.pb.h"')
        self.includes("tests/sim/sim_test.cc", '"server/node/node.h"',
                      "<grpcpp/grpcpp.h>")
        self.assert_clean("layers")

    def test_a_lower_folder_may_not_include_a_higher_one(self):
        self.includes("proto/base/id.h", '"client/client.h"')
        self.assert_finding("layers", "proto/base/id.h:1", "to its right")

    def test_server_includes_of_client_only_transport(self):
        self.includes("server/node/node.cc", '"client/read.h"')
        self.assert_finding("layers", "server/node/node.cc:1",
                            "only client/transport")

    def test_tools_include_of_server_only_policy(self):
        self.includes("tools/replay/replay.cc", '"server/tier/tier.h"')
        self.assert_finding("layers", "tools/replay/replay.cc:1",
                            "only server/policy")

    def test_transport_knows_nothing_of_the_client_above_it(self):
        self.includes("client/transport/a.cc", '"client/session.h"')
        self.assert_finding("layers", "client/transport/a.cc:1", "built upon")

    def test_inside_server_the_order_holds(self):
        self.includes("server/policy/a.cc", '"server/io/b.h"')
        self.assert_finding("layers", "server/policy/a.cc:1", "to its right")

    def test_node_and_catalog_never_meet(self):
        self.includes("server/node/a.cc", '"server/catalog/b.h"')
        self.assert_finding("layers", "server/node/a.cc:1", "never meet")

    def test_each_boundary_is_watched(self):
        for header in ("<grpcpp/grpcpp.h>", "<rocksdb/db.h>",
                       "<ucp/api/ucp.h>", "<liburing.h>",
                       '"proto/node.pb.h"', "<google/protobuf/arena.h>",
                       "<yaml-cpp/yaml.h>", "<CLI/CLI.hpp>",
                       "<gtest/gtest.h>", "<openssl/sha.h>",
                       "<pybind11/pybind11.h>", "<Python.h>"):
            self.includes("server/tier/a.cc", header)
            self.assert_finding("layers", "server/tier/a.cc:1", "includes ")

    def test_an_include_that_is_commented_out_is_none(self):
        self.source("server/tier/a.cc", "/*\n#include <grpcpp/grpcpp.h>\n*/")
        self.assert_clean("layers")

    def test_an_include_without_its_folder_is_found(self):
        self.includes("proto/base/a.cc", '"id.h"')
        self.assert_finding("layers", "proto/base/a.cc:1", "from the root")


class ShapeTest(CheckerTest):

    def test_good_code_passes(self):
        self.source("proto/base/good.h", GOOD_HEADER)
        self.assert_clean("shape")

    def assert_caught(self, code, words, path="server/tier/a.cc", line=1):
        self.source(path, code)
        self.assert_finding("shape", f"{path}:{line}", words)

    def assert_passes(self, code, path="server/tier/a.cc"):
        self.source(path, code)
        self.assert_clean("shape")

    def test_banned_words_in_class_names(self):
        for name in ("SlotManager", "ErrorHandler", "StringUtil", "BlockInfo",
                     "SlotData"):
            self.assert_caught(f"class {name} {{}};\n", name)
        self.assert_passes("class DataPath {};\nclass Dataset {};\n")

    def test_banned_words_in_file_names(self):
        self.assert_caught("\n", "util", path="server/tier/block_util.h")

    def test_file_names_are_snake_case(self):
        self.assert_caught("\n", "snake_case", path="server/tier/DramPool.h")

    def test_bans(self):
        for code in ("std::mutex m;", "absl::MutexLock lock(&m);",
                     "std::thread t;", "absl::SleepFor(x);", "sleep(1);",
                     "usleep(1);", "t.detach();", "absl::Now();",
                     "std::chrono::steady_clock::now();", 'getenv("A");',
                     "throw 1;", "void ResetForTesting();",
                     "friend class SlotTest;", "std::mt19937 r;"):
            self.assert_caught(code + "\n", "banned")

    def test_what_a_seam_needs_it_may_use(self):
        self.assert_passes("std::thread t;\n", "server/base/thread.h")
        self.assert_passes("std::thread t;\n", "client/transport/epoll.cc")
        self.assert_passes("absl::Mutex m;\n", "proto/base/mutex.h")

    def test_a_todo_carries_an_issue(self):
        self.assert_caught("// " + "TODO: later\n", "without an issue")
        self.assert_passes("// " + "TODO(#12): later\n")

    def test_a_switch_over_an_outcome_has_no_default(self):
        self.assert_caught(
            "void F() {\n  switch (x) {\n    case ReadOutcome::kHit:\n"
            "      break;\n    default:\n      break;\n  }\n}\n",
            "default in a switch", line=5)
        self.assert_passes(
            "void F() {\n  switch (c) {\n    case 'a':\n      break;\n"
            "    default:\n      break;\n  }\n}\n")

    def test_lines_of_more_than_80_columns(self):
        self.assert_caught("// " + "x" * 78 + "\n", "81 columns")
        self.assert_passes("// " + "x" * 77 + "\n")

    def test_long_files(self):
        self.assert_caught("\n" * 301, "301 lines", "server/tier/a.h", 301)
        self.assert_caught("\n" * 501, "501 lines", "server/tier/a.cc", 501)
        self.assert_passes("\n" * 300, "server/tier/a.h")
        self.assert_caught("\n" * 601, "601 lines", "tests/a_test.cc", 601)

    def test_an_allowance_raises_the_limit_with_a_reason(self):
        self.write("tools/tidy/allow.txt",
                   "server/tier/a.h 350 It is one table.\n")
        self.assert_passes("\n" * 340, "server/tier/a.h")
        self.assert_caught("\n" * 351, "of 350", "server/tier/a.h", 351)

    def test_an_allowance_is_needed_bounded_and_reasoned(self):
        self.source("server/tier/a.h", "\n" * 10)
        for line, words in (("server/tier/a.h 350 It is one table.", "needs"),
                            ("server/tier/a.h 500 It is one table.", "much"),
                            ("server/tier/a.h 350", "reason"),
                            ("server/tier/b.h 350 It is one table.",
                             "does not exist")):
            self.write("tools/tidy/allow.txt", line + "\n")
            self.assert_finding("shape", "tools/tidy/allow.txt:1", words)

    def test_long_functions(self):
        def function(lines):
            return ("namespace a {\nint b = 1;\nvoid C::F(int x) {\n"
                    + "  x += 1;\n" * (lines - 2) + "}\n}\n")
        self.assert_caught(function(71), "C::F has 71 lines", line=3)
        self.assert_passes(function(70))

    def test_a_class_with_many_short_functions_is_no_long_function(self):
        self.assert_passes("class A final : public B {\n public:\n"
                           + "  int F() { return x_[0]; }\n" * 100 + "};\n")

    def test_a_shared_ptr_has_its_reason_beside_it(self):
        self.assert_caught("std::shared_ptr<int> a;\n", "its reason",
                           "server/tier/a.h")
        self.assert_passes("// Buffers in flight have several owners.\n"
                           "std::shared_ptr<int> a;\n", "server/tier/a.h")

    def test_a_file_that_no_list_has_is_dead(self):
        self.write("server/tier/a.cc", "\n")
        self.assert_finding("shape", "server/tier/a.cc:1", "lists it")
        self.write("server/CMakeLists.txt", "# tier/a.cc\n")
        self.assert_finding("shape", "server/tier/a.cc:1", "lists it")
        self.write("server/CMakeLists.txt", "SRCS tier/a.cc\n")
        self.assert_clean("shape")


class DocsTest(CheckerTest):

    def test_a_path_that_exists_passes(self):
        self.write("proto/base/id.h", "\n")
        self.write("docs/A.md", "See `proto/base/id.h`, `proto/base/`, "
                   "`proto/{base,}/*`, `tests/<name>_test.cc`, `a/b.h`.\n"
                   "```\ntools/none\n```\n")
        self.assert_clean("docs")

    def test_a_path_that_does_not_exist_is_found(self):
        self.write("docs/A.md", "\nSee `proto/base/none.h`.\n")
        self.assert_finding("docs", "docs/A.md:2", "does not exist")

    def test_a_generated_document_is_what_its_program_prints(self):
        self.write("docs/A.md", "old\n")
        self.write("tools/tidy/generated.txt", "docs/A.md printer new\n")
        self.write("build/release/bin/printer", '#!/bin/sh\necho "$1"\n')
        os.chmod(f"{self.folder.name}/build/release/bin/printer", 0o755)
        self.assert_finding("docs", "docs/A.md:1", "its program prints")
        self.write("docs/A.md", "new\n")
        self.assert_clean("docs")


class RulesTest(CheckerTest):

    PAGE = "docs/CORRECTNESS.md"

    def page(self, lines):
        self.write(self.PAGE, "# Correctness\n\n### P7\n\nReuse.\n\n" + lines)

    def test_the_page_names_the_tests_and_mutants_of_a_rule(self):
        self.write("tests/tier/pool_test.cc",
                   "// It waits. Rules P3, P7: whatever comes.\n"
                   "TEST_F(PoolTest, Waits) {}\n"
                   "// Rule P70 is another one.\nTEST(Pool, Other) {}\n")
        self.write("tests/mutants/P7_early.patch", "# rule: P7\n# fault: x\n")
        self.page("Tests: `Gone` (tests/gone.cc).\n")

        self.assertIn("rules.py --write", self.findings("rules"))
        self.page("Tests: `Waits` (tests/tier/pool_test.cc).\n\n"
                  "Mutants: `P7_early`.\n")
        self.assertEqual(self.findings("rules"), "")

    def test_a_rule_without_a_test_is_listed_as_such(self):
        self.page("Tests: none.\n\nMutants: none.\n")

        self.assertEqual(self.findings("rules"), "")


if __name__ == "__main__":
    unittest.main()
