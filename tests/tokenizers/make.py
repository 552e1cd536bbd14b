#!/usr/bin/env python3
"""Tokenizers and expected ids for tok_test: python3 tests/tokenizers/make.py [MODEL_DIRECTORY]

Makes small tokenizer.json files of each style (trained here, on TEXTS) and, with the reference implementation (PyPI
`tokenizers` 0.23), what each gives for TEXTS: a line a text: hex of the text, ids, hex of the decoded text (special tokens
skipped). With a model directory: what its own tokenizer.json gives, as smollm2.txt. Needs tokenizers.
"""
import json
import os
import random
import sys

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

HERE = os.path.dirname(os.path.abspath(__file__))
LLAMA3 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+"
          r"|\s+(?!\S)|\s+")
QWEN = LLAMA3.replace("{1,3}", "")
SENTENCES = [
    "", " ", "  ", "\n", "Hello, world!", " Hello", "Hello ", "  leading and  double   spaces ", "a\tb\r\nc\n\n\nd",
    "I'm sure you're right; they'LL say IT'S what we'd've done. He ſaid 'ſo'.",
    "The year 2024, 12345678 and 3.14159; ½ and Ⅷ and ٣٤٥ and ४२.",
    "for (int i = 0; i < n; i++) {\n\t\tx[i] += 0x1F; // tabs\n    }\n",
    "Größe, naïve café, Ångström, œuvre, İstanbul, ﬁne ﬂow",
    "Cafe\u0301 and A\u030angstro\u0308m, decomposed; \u1e9b\u0323; ① ㎏ ｆｕｌｌ",
    "Съешь же ещё этих мягких французских булок, да выпей чаю.",
    "Ξεσκεπάζω την ψυχοφθόρα βδελυγμία.", "עטלף אבק נס דרך מזגן שהתפוצץ כי חם", "نص حكيم له سر قاطع وذو شأن عظيم",
    "ऋषियों को सताने वाले दुष्ट राक्षसों के राजा रावण का सर्वनाश", "เป็นมนุษย์สุดประเสริฐเลิศคุณค่า",
    "我能吞下玻璃而不伤身体。今天是2024年12月1日。", "いろはにほへと ちりぬるを 私はガラスを食べられます。", "다람쥐 헌 쳇바퀴에 타고파",
    "😀 👩‍👩‍👧‍👦 🇩🇪 👍🏽 ☃️", "zero\u200bwidth\u200djoin\u180emong\u00a0nbsp\u3000wide\u2028line\u0085next",
    "▁underscore ▁ and <0x41> and </s> and <s> inside", "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n",
    "x<mask>y < mask > <mask> z", "word tail  <pad>  pad", "\u0000nul\u0001", "\U0001d54f\U0001d7d8 \U0010ffff \ufffd",
    "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa", "!!!???...---", "https://example.org/a?b=c&d=%20#e",
]
ALPHABET = ("abc XYZ 0123 \n\t'.,;!<>|_▁éüßñ\u0301\u0308Жяאבعمकििกา我们日本か가나½²٣😀👍🏽\u200d\u00a0\u3000\u180e\u0085ſK"
            "\u1e9b\ufb01\U0001d400\ue000\u2028'sS'LL")


def texts():
    rng = random.Random(7)
    out = list(SENTENCES)
    for _ in range(150):
        out.append("".join(rng.choice(ALPHABET) for _ in range(rng.randrange(1, 40))))
    for _ in range(50):
        chars = [chr(rng.choice([rng.randrange(0x20, 0x3000), rng.randrange(0x3000, 0xd800), rng.randrange(0x1f300, 0x1f650)]))
                 for _ in range(rng.randrange(1, 20))]
        out.append("".join(chars))
    return out


def byte_level(pattern, ignore_merges=False, normalizer=None):
    t = Tokenizer(models.BPE(ignore_merges=ignore_merges))
    t.normalizer = normalizer
    t.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(pattern), "isolated", invert=False),
                                               pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    t.decoder = decoders.ByteLevel()
    t.train_from_iterator(SENTENCES * 3, trainers.BpeTrainer(
        vocab_size=600, min_frequency=2, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False))
    t.add_special_tokens(["<s>", "<|im_start|>", "<|im_end|>"])
    t.add_tokens([AddedToken("<mask>", lstrip=True, rstrip=True, normalized=False, special=False),
                  AddedToken("tail", single_word=True, normalized=True)])
    return t


def sentencepiece(style):
    t = Tokenizer(models.BPE(unk_token="<unk>", fuse_unk=True, byte_fallback=True))
    marked = [s.replace(" ", "▁") for s in SENTENCES]
    byte_tokens = [f"<0x{b:02X}>" for b in range(256)]
    t.train_from_iterator(marked[:16] * 3, trainers.BpeTrainer(
        vocab_size=700, min_frequency=2, special_tokens=["<unk>", "<s>", "</s>"] + byte_tokens, show_progress=False,
        limit_alphabet=120))
    data = json.loads(t.to_str())
    data["added_tokens"] = [a for a in data["added_tokens"] if not a["content"].startswith("<0x")]
    t = Tokenizer.from_str(json.dumps(data))
    if style == "metaspace":
        t.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="first", split=False)
    elif style == "split":
        t.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="always", split=True)
    else:
        t.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    t.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(),
                                   decoders.Strip(" ", 1, 0)])
    if style == "split":
        t.decoder = decoders.Metaspace(prepend_scheme="always")
    t.post_processor = processors.TemplateProcessing("<s> $A", "<s> $A <s> $B", [("<s>", 1)])
    t.add_special_tokens([AddedToken("<pad>", rstrip=True, special=True)])
    return t


def expect(name, t):
    with open(os.path.join(HERE, name + ".txt"), "w", encoding="ascii") as out:
        for text in texts():
            ids = t.encode(text).ids
            print(text.encode().hex() or "-", ",".join(map(str, ids)) or "-", t.decode(ids).encode().hex() or "-", file=out)


def main():
    made = {
        "llama3": byte_level(LLAMA3, ignore_merges=True),
        "qwen": byte_level(QWEN, normalizer=normalizers.NFC()),
        "nfkc": byte_level(QWEN, normalizer=normalizers.NFKC()),
        "llama2": sentencepiece("normalizer"),
        "mistral": sentencepiece("metaspace"),
        "metaspace": sentencepiece("split"),
    }
    for name, t in made.items():
        t.save(os.path.join(HERE, name + ".json"), pretty=False)
        expect(name, t)
    if len(sys.argv) > 1:
        expect("smollm2", Tokenizer.from_file(os.path.join(sys.argv[1], "tokenizer.json")))


if __name__ == "__main__":
    main()
