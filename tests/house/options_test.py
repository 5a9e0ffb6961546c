"""An option that the documents lack, that they invented, or of which they say something else than the daemon is found."""

import unittest

import options  # which finds option_table
from options import option_table

HELP = """usage: gradringd [SETTING]...

Command line only:
  --config FILE     INI file [/etc/x, if it exists]
  --check-config    check everything

Settings:
  --listen ADDRESS:PORT   where peers reach this daemon; its network also
                          carries the gradients [127.0.0.1:7300]
  --peer HOST:PORT        another daemon
  --insecure [=arg(=true)]  no encryption [false]
  --an-option-with-a-long-name COUNT
                          this or that, a|b; default: as many as there
                          are

Precedence: flag [first].
"""
PAGE = """# Configuration
## Options

In words.

| option | default | meaning | more |
| --- | --- | --- | --- |
| `listen` | `127.0.0.1:7300` | where peers reach this daemon; its network also carries the gradients | [here](#a) |
| `peer` | | another daemon | |
| `insecure` | `false` | no encryption | a \\| b |
| `an-option-with-a-long-name` | as many as there are | this or that, a\\|b | |

More words.
## Next
| `other` | | not ours | |
"""
SAMPLE = ("# a comment\n#listen = 127.0.0.1:7300\n#peer = a:1\n#insecure = false\n"
          "#an-option-with-a-long-name = 7\n")
OPTIONS = option_table.options_of_help(HELP)


def complaints(page=PAGE, sample=SAMPLE):
    return list(options.compare(OPTIONS, page, sample))


class Options(unittest.TestCase):
    def test_true_documents(self):
        self.assertEqual(complaints(), [])
        self.assertEqual(option_table.renewed(PAGE, OPTIONS), PAGE)

    def test_a_missing_option(self):
        self.assertIn("does not have peer", complaints(page=PAGE.replace("| `peer` | | another daemon | |\n", ""))[0])
        self.assertIn("does not have insecure", complaints(sample=SAMPLE.replace("#insecure", "#"))[0])

    def test_another_name_of_an_option_need_not_be_in_the_sample(self):
        more = {**OPTIONS, "friend": ("", "the same as peer, which was called so once")}
        self.assertEqual(list(options.complaints_about_sample(more, options.options_of_sample(SAMPLE))), [])

    def test_a_missing_flag_of_horovodrun(self):
        text = ("Options:\n  --rsh CMD\n\nAs horovodrun has them:\n  -p [ --ssh-port ] PORT  goes on\n  --tune-a N\n"
                "  --tree     no need\n  --no-tree  no need\n\nEach rank\n")
        page = "| `-p`, `--ssh-port` | the same |\n| `--tune-...` | not needed |\n| `--tree`, and with `--no-` | not needed |\n"
        self.assertEqual(list(options.complaints_about_flags(text, page)), [])
        self.assertEqual([one.split()[4] for one in options.complaints_about_flags(text, page.replace(", and with `--no-`", ""))],
                         ["--no-tree,"])

    def test_an_invented_option(self):
        self.assertIn("has magic", complaints(sample=SAMPLE + "#magic = 1\n")[0])
        self.assertIn("has magic", complaints(page=PAGE.replace("| `peer`", "| `magic` | 1 | none | |\n| `peer`"))[0])

    def test_a_wrong_default(self):
        self.assertIn("127.0.0.1:7301", complaints(page=PAGE.replace("7300", "7301"))[0])
        self.assertIn("default is '127.0.0.1:7300'", complaints(sample=SAMPLE.replace("7300", "7301"))[0])

    def test_a_meaning_that_is_not_the_programs(self):
        self.assertIn("says of peer", complaints(page=PAGE.replace("another daemon", "a friend"))[0])

    def test_the_table_is_renewed_and_what_people_wrote_is_kept(self):
        stale = PAGE.replace("7300", "7301").replace("| `peer` | | another daemon | |\n", "| `magic` | | none | |\n")
        self.assertEqual(option_table.renewed(stale, OPTIONS), PAGE)


if __name__ == "__main__":
    unittest.main()
