"""`iha prepare`: shards where they are asked for, and counts that are theirs."""

import re

from cli.calls import assert_refused, iha
from iha.train.shards import open_shards


def test_shards_and_what_is_said_of_them(recipe, tmp_path):
    result = iha("prepare", recipe, "--out", tmp_path / "data", "--workers", 1)
    assert result.exit_code == 0, result.output
    said = dict(re.findall(r"(train|validation) ([\d,]+) tokens", result.output))
    for split in ("train", "validation"):
        tokens = sum(shard.num_tokens for shard in open_shards(tmp_path / "data" / "hops", split))
        assert int(said[split].replace(",", "")) == tokens > 0
    assert f"shards in {tmp_path / 'data'}" in result.output.replace("\n", "")


def test_the_recipe_s_directory_is_used_without_out(recipe, tmp_path):
    result = iha("prepare", recipe, f"data.directory={tmp_path / 'there'}", "--workers", 1)
    assert result.exit_code == 0, result.output
    assert (tmp_path / "there" / "hops" / "source.json").is_file()


def test_nowhere_to_put_them_is_refused(recipe):
    assert_refused(iha("prepare", recipe), "data.directory is not set")
