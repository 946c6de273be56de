"""Words that documents are made of: few, so that a small vocabulary has each as one token, and a short
training shows each often."""

WORDS = """
acid army baby ball bank bell bird blue boat bone book bush cake call camp card city club coal coat cook cool
crew dark dawn deal desk diet dish door down dust east edge face farm fast film fire fish five flat food foot
four free fuel fund game gate gear gift girl goal gold golf good gray hair half hall hand hard head
""".split()  # noqa: SIM905
NAMES = """
Ann Ben Carl Dora Emil Fay Gus Hana Ivan Jane Kurt Lena Max Nora Otto Paul Quin Rosa Sam Tina Uma Vera Walt
Xena Yara Zoe Alma Bert Cora Dean Elsa Finn Gina Hugo Ines Jack
""".split()  # noqa: SIM905
