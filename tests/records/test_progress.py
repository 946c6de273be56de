from iha.records import silent


def test_silence_accepts_everything(capsys):
    with silent.task("work", total=3, done=1) as task:
        task.advance(2, note="loss 1.0")
    assert capsys.readouterr() == ("", "")
