"""Words that documents are made of: short and common, so that a small vocabulary has most of them whole."""

WORDS = """
able acid aged also area army away baby back ball band bank base bath bear beat been beer bell belt best bill
bird blow blue boat body bomb bond bone book boom born boss both bowl bulk burn bush busy cake call calm camp
card care case cash cast cell chat chip city club coal coat code cold come cook cool cope copy core cost crew
crop dark data date dawn days dead deal dean dear debt deep deny desk dial diet disc dish does door dose down
draw drew drop drug dual duke dust duty each earn ease east easy edge else even ever evil exit face fact fail
fair fall farm fast fate fear feed feel feet fell felt file fill film find fine fire firm fish five flat flow
food foot ford form fort four free from fuel full fund gain game gate gave gear gene gift girl give glad goal
goes gold golf gone good gray grew grey grow gulf hair half hall hand hang hard harm hate have head hear
""".split()  # noqa: SIM905
NAMES = """
Ann Ben Carl Dora Emil Fay Gus Hana Ivan Jane Kurt Lena Max Nora Otto Paul Quin Rosa Sam Tina Uma Vera Walt
Xena Yara Zoe Alma Bert Cora Dean Elsa Finn Gina Hugo Ines Jack
""".split()  # noqa: SIM905
