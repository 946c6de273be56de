"""Sources: every document once, however a file is cut into parts."""

import gzip
import json

import pytest

from iha.train import sources
from iha.train.recipe import Source
from iha.train.sources import parts, read, standard_library


def texts(source):
    return ["".join(s.text for s in document) for part in parts(source) for document in read(source, part, seed=0)]


def test_jsonl_is_cut_by_bytes_and_every_line_read_once(tmp_path, monkeypatch):
    rows = [{"text": f"{i} " + "é" * (i % 50)} for i in range(500)]
    (tmp_path / "a.jsonl").write_text("\n".join(json.dumps(row, ensure_ascii=False) for row in rows) + "\n\n")
    expected = [row["text"] for row in rows]
    for size in (1, 7, 100, 1000, 10**6):
        monkeypatch.setattr(sources, "PART_BYTES", (size, size))
        source = Source("a", "jsonl", paths=[str(tmp_path / "*.jsonl")])
        assert texts(source) == expected
    assert len(parts(Source("a", "jsonl", paths=[str(tmp_path / "a.jsonl")]))) == 1


def test_text_by_file_and_by_line_and_compressed(tmp_path):
    (tmp_path / "a.txt").write_text("one\ntwo\n\nthree\n")
    with gzip.open(tmp_path / "b.txt.gz", "wt") as file:
        file.write("four\n")
    paths = [str(tmp_path / "a.txt"), str(tmp_path / "b.txt.gz")]
    assert texts(Source("t", "text", paths=paths)) == ["one\ntwo\n\nthree", "four"]
    assert texts(Source("t", "text", paths=paths, documents="line")) == ["one", "two", "three", "four"]


def test_parquet_by_row_groups(tmp_path):
    pytest.importorskip("pyarrow")
    import pyarrow
    import pyarrow.parquet

    table = pyarrow.table({"body": [f"row {i}" for i in range(25)]})
    pyarrow.parquet.write_table(table, tmp_path / "a.parquet", row_group_size=10)
    source = Source("p", "parquet", paths=[str(tmp_path / "a.parquet")], column="body")
    assert len(parts(source)) == 3
    assert texts(source) == [f"row {i}" for i in range(25)]
    with pytest.raises(ValueError, match="no text in column 'text'; the row has body"):
        texts(Source("p", "parquet", paths=[str(tmp_path / "a.parquet")]))


def test_a_hugging_face_dataset_by_its_directory(tmp_path):
    pytest.importorskip("datasets")
    (tmp_path / "set").mkdir()
    (tmp_path / "set" / "train.jsonl").write_text("".join(json.dumps({"text": f"d{i}"}) + "\n" for i in range(5)))
    assert texts(Source("h", "huggingface", dataset=str(tmp_path / "set"))) == [f"d{i}" for i in range(5)]
    with pytest.raises(ValueError, match=r"dataset '.*nothing' cannot be loaded"):
        parts(Source("h", "huggingface", dataset=str(tmp_path / "nothing")))


def test_generated_documents_are_the_puzzles():
    from iha.train.puzzles import generate

    source = Source("g", "generated", generator="hops", count=7)
    assert texts(source) == [generate("hops", "train", 0, index).text for index in range(7)]
    answers = Source("g", "generated", generator="hops", count=1, answers_only=True)
    (document,) = read(answers, parts(answers)[0], seed=0)
    assert [s.text.strip() for s in document if s.loss] == list(generate("hops", "train", 0, 0).answers)


def test_word_problems_are_tuned_on_their_whole_solution():
    source = Source("g", "generated", generator="arithmetic", count=1, answers_only=True)
    (document,) = read(source, parts(source)[0], seed=0)
    question, solution = "".join(s.text for s in document).split("Answer:")
    assert "".join(s.text for s in document if s.loss) == solution
    assert "".join(s.text for s in document if not s.loss) == question + "Answer:"


def test_the_standard_library_is_always_there():
    files = standard_library()
    assert {"abc.py", "json/decoder.py"} <= {path.as_posix().split("/lib/")[-1].split("/", 1)[1] for path in files}
    assert not any("site-packages" in path.parts or "test" in path.parts for path in files)
    grouped = parts(Source("s", "stdlib"))
    assert sum(len(part.paths) for part in grouped) == len(files)


@pytest.mark.parametrize(
    ("line", "message"),
    [("{", "the line at byte 0 is not JSON"), ("[1]", "the row has list"), ('{"text": 1}', "no text in column 'text'")],
)
def test_bad_rows_are_named(tmp_path, line, message):
    (tmp_path / "a.jsonl").write_text(line + "\n")
    with pytest.raises(ValueError, match=message):
        texts(Source("a", "jsonl", paths=[str(tmp_path / "a.jsonl")]))


def test_missing_and_binary_files_are_named(tmp_path):
    with pytest.raises(ValueError, match="source a: no file"):
        parts(Source("a", "text", paths=[str(tmp_path / "*.txt")]))
    (tmp_path / "b.txt").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ValueError, match=r"b\.txt: not UTF-8"):
        texts(Source("b", "text", paths=[str(tmp_path / "b.txt")]))
    (tmp_path / "c.parquet").write_bytes(b"no")
    with pytest.raises(ValueError, match=r"c\.parquet: not a parquet file"):
        parts(Source("c", "parquet", paths=[str(tmp_path / "c.parquet")]))
