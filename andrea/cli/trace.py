"""`andrea trace`: one token on its way through the model."""

from pathlib import Path
from typing import Annotated, Any

import typer

from andrea.show import Table, number, percent, print_json, terminal

Option, Argument = typer.Option, typer.Argument
NOT_DEFINED = "not defined"


def trace(
    run: Annotated[Path | None, Argument(help="A run folder, or its name under runs/.", show_default=False)] = None,
    text: Annotated[str | None, Argument(help="The text to read; it is opened by the separator, position 0.", show_default=False)] = None,
    *,
    token: Annotated[int, Option(help="Which token to follow: its position, or -1 for the last, -2 for the one before it.")] = -1,
    heads: Annotated[bool, Option("--heads", help="Also show every head by itself.")] = False,
    html: Annotated[Path | None, Option(help="Write a page that opens anywhere, without a network.", show_default=False)] = None,
    png: Annotated[Path | None, Option(help="Draw a picture.", show_default=False)] = None,
    paper: Annotated[
        bool, Option("--paper", help="No run: a model of D = 4 with every number of every step, to compute again by hand.")
    ] = False,
    device: Annotated[str, Option(help="cpu, cuda, cuda:1; not mps, which lacks the float64 that this takes.")] = "cpu",
    at: Annotated[str, Option(metavar="best|last", help="Which checkpoint of the run.")] = "best",
    as_json: Annotated[bool, Option("--json", help="Print one JSON object instead of tables.")] = False,
) -> None:
    """Follow one token from the embedding to the logits: what each sublayer read, added and left behind.

    At the foot stand the books: what every part pushed the answer's logit by, and that the parts sum to it.

    Examples:

      andrea trace runs/first "Once upon a time"

      andrea trace runs/first "The cat sat on the" --token 2 --heads

      andrea trace runs/first "The cat sat on the" --html trace.html --png trace.png

      andrea trace --paper
    """
    if paper:
        from andrea.insight.paper import paper as compute

        if run or html or png:
            raise ValueError("--paper has a model and a text of its own; give no run, --html or --png with it")
        done = compute()
        print_json(done) if as_json else terminal(paper_tables(done))
        return
    if run is None or text is None:
        raise ValueError('give a run and a text: andrea trace RUN "Once upon a time"; or --paper')
    from andrea.checkpoint import load
    from andrea.infer import prompt_ids
    from andrea.insight.story import tell
    from andrea.insight.trace import trace as capture
    from andrea.machine import choose_device

    opened = load(run, at, choose_device(device).value)
    ids = prompt_ids(opened.tokenizer, text)
    if not -len(ids) <= token < len(ids):
        raise ValueError(f"--token {token} is not among the {len(ids)} tokens of this text, 0 (the separator) to {len(ids) - 1}")
    story = {
        "run": str(opened.path),
        "step": opened.step,
        "text": text,
        **tell(capture(opened.model, ids, tokenizer=opened.tokenizer), token),
    }
    if html:
        from andrea.files import replace_text
        from andrea.insight.page import page

        replace_text(html, page(story))
    if png:
        from andrea.insight.picture import draw_story

        draw_story(story, png)
    if as_json:
        print_json(without_weights(story))
    elif html or png:
        print("\n".join(f"wrote {path}" for path in (html, png) if path))
    else:
        terminal(tables(story, heads))


def without_weights(story: dict[str, Any]) -> dict[str, Any]:
    """The same without the whole rows of attention, which are as long as the text for every head; the strongest stay."""
    short = lambda part: {**part, "heads": [{k: v for k, v in head.items() if k != "weights"} for head in part["heads"]]}
    sublayers = [{**s, "attention": short(s["attention"])} if "attention" in s else s for s in story["sublayers"]]
    return {**story, "sublayers": sublayers}


def shown(value: float | None, form: str = ".3f") -> str:
    return NOT_DEFINED if value is None else format(value, form)


def said(lens: dict[str, Any]) -> str:
    best = lens["top"][0]
    return f"{best['text']!r} {percent(best['probability'])}"


def where(looks: list[dict[str, Any]], n: int = 3) -> str:
    return ", ".join(f"{look['text']!r} ({look['position']}) {look['weight']:.2f}" for look in looks[:n])


def together(heads: list[dict[str, Any]], words: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Where the heads of a sublayer look in the mean."""
    mean = [sum(weights) / len(heads) for weights in zip(*(head["weights"] for head in heads), strict=True)]
    best = sorted(range(len(mean)), key=lambda i: -mean[i])
    return [{"position": i, "text": words[i]["text"], "weight": mean[i]} for i in best[:3]]


def push_of(value: dict[str, float] | None, whom: str = "answer") -> str:
    return shown(None if value is None else value[whom], "+.3f")


def tables(story: dict[str, Any], heads: bool = False) -> list[Table]:
    """The story for a terminal."""
    at, words, embedding = story["position"], story["tokens"], story["embedding"]
    answer, following = story["answer"], story["next"]
    target = following or answer
    way, says, mlps, norms, single = [], [], [], [], []
    for s in story["sublayers"]:
        added, here = s["added"], s["address"]
        looked = where(together(s["attention"]["heads"], words)) if "attention" in s else ""
        angle = NOT_DEFINED if added["degrees"] is None else f"{added['degrees']:.0f}°"
        parts = (s["read"]["mean"], s["read"]["std"], added["norm"])
        way.append((here, *(shown(x) for x in parts), shown(added["relative"], ".2f"), angle, shown(s["stream_norm"], ".2f"), looked))
        after = s["after"]
        says.append((here, said(s["before"]), said(after), percent(after["target_probability"]), after["target_rank"], push_of(s["push"])))
        if "mlp" in s:
            m = s["mlp"]
            strong = ", ".join(f"{n['neuron']}: {n['before']:+.2f} -> {n['after']:+.2f}" for n in m["neurons"][:3])
            cut = f"{m['cut']} of {m['width']}"
            mlps.append((here, shown(m["expanded_norm"], ".2f"), percent(m["let_through"]), cut, shown(added["norm"], ".2f"), strong))
        for head in s.get("attention", {"heads": []})["heads"]:
            sharp = shown(head["entropy"], ".2f")
            single.append((here, head["head"], where(head["looks"]), sharp, shown(head["norm"]), push_of(head["push"])))
    for norm in [*(s["norm"] for s in story["sublayers"]), story["final_norm"]]:
        if norm:
            lengths = ("centred_norm", "normalised_norm", "after_gamma_norm", "after_beta_norm")
            norms.append((norm["address"], *(shown(norm[key]) for key in ("mean", "std", *lengths))))
    start = ("embedding", "", said(embedding["lens"]), percent(embedding["lens"]["target_probability"]), embedding["lens"]["target_rank"])
    comes = (
        f"next in the text: {following['text']!r}" if following else "nothing follows in the text, so the answer stands for the next token"
    )
    length = f"Norms are lengths of vectors; the embedding's is {embedding['norm']:.2f}."
    foot = f"It answers {answer['text']!r} ({percent(answer['probability'])}); {comes}. {length}"
    title = f"Token {at}, {words[at]['text']!r}, through {story.get('run', 'the model')}"
    name = repr(target["text"])
    steps = "The last four are the vector's length after each step."
    return [
        Table(
            f"{title}: what each sublayer read and added",
            ("sublayer", ">mean read", ">std read", ">added", ">/ stream", ">angle", ">stream after", "looked at (mean of heads)"),
            way,
            foot,
        ),
        Table(
            "What the model would say there (logit lens), and what each pushed its answer by",
            ("sublayer", "before", "after", f">p of {name}", ">rank", ">push"),
            [(*start, push_of(embedding["push"])), *says],
            "Push: the part of the answer's logit, against the average token, the final norm frozen. Where input and output share a matrix,"
            " an early lens tends to name the token itself.",
        ),
        *([Table("Every head", ("sublayer", ">head", "looked at", ">spread 0..1", ">wrote", ">push"), single)] if heads else []),
        Table(
            "MLP: expand, let through, compress",
            ("sublayer", ">expanded", ">let through", ">cut to < 1/10", ">written", "strongest neurons, before -> after"),
            mlps,
        ),
        *(
            [Table("LayerNorm, step by step", ("norm", ">mean", ">std", ">|x - mean|", ">/ std", ">* gamma", ">+ beta"), norms, steps)]
            if norms
            else []
        ),
        books(story),
    ]


def books(story: dict[str, Any]) -> Table:
    """What every part gives to the answer's logit, and that it sums up."""
    kept = story["books"]
    rows = [(part["part"], f"{part['answer']:+.4f}") for part in kept["parts"]] + [(name, NOT_DEFINED) for name in kept["undefined"]]
    rows += [("sum of the parts", f"{kept['sum'][0]:+.4f}"), ("the model's logit", f"{kept['logit'][0]:+.4f}")]
    least = f"The average token's logit is {kept['mean_logit']:+.3f}; pushes are against it."
    stream = "" if kept["stream_error"] is None else f"; embedding and writes rebuild the stream to {kept['stream_error']:.1e}"
    return Table(
        f"The books: the logit of {story.get('answer', {}).get('text', 'the answer')!r}",
        ("part", ">logit"),
        rows,
        f"Balance error: {story['balance_error']:.1e} of the largest logit, {number(kept['largest_logit'])}{stream}. {least}",
    )


def paper_tables(done: dict[str, Any]) -> list[Table]:
    """Weights, and one table for each place in the model; numbers to 4 decimals, eight to a line."""
    lines = lambda numbers, form: "\n".join(
        " ".join("   --   " if x is None else format(x, form) for x in numbers[i : i + 8]) for i in range(0, len(numbers), 8)
    )
    matrix = lambda values: values if isinstance(values[0], list) else [values]
    weights = [(name if i == 0 else "", i, lines(row, "4.1f")) for name, v in done["weights"].items() for i, row in enumerate(matrix(v))]
    tables = [Table("Weights, by input row", ("name", ">row", "values"), weights, f"Letters {done['letters']} are the ids 0, 1, 2, ...")]
    for address in dict.fromkeys(step["address"] for step in done["steps"]):
        rows = []
        for step in done["steps"]:
            if step["address"] == address:
                each = step["values"] if isinstance(step["values"][0][0], list) else [step["values"]]
                for h, tokens in enumerate(each):
                    label = step["step"] + (f", head {h}" if len(each) > 1 else "")
                    for letter, values in zip(done["text"], tokens, strict=True):
                        first = letter == done["text"][0]
                        rows.append((label if first else "", step["formula"] if first and not h else "", letter, lines(values, "8.4f")))
        tables.append(Table(address, ("step", "how", "token", "values"), rows))
    return [*tables, books({**done, "answer": {"text": "its likeliest letter"}})]
