"""English: words, phrases, rules. How rules are read stands in grammar.py; which are told in which order, in __init__.py."""

from andrea.data.stories.grammar import Adjective, Lexicon, Noun, Piece, Thing, Verb

NOUNS = {  # meaning -> singular, or singular/plural where that is not made with an s
    "animal": "dog cat rabbit fox/foxes bear duck frog hen horse cow goat pig mouse/mice owl crow gull seal crab fish/fish "
    "squirrel hedgehog swan donkey goose/geese calf/calves lamb kitten puppy/puppies turtle snail bee beetle beaver",
    "person": "girl boy mother father baker farmer teacher sailor doctor painter singer cook carpenter gardener shepherd captain miller "
    "postman/postmen fisherman/fishermen grandmother grandfather aunt neighbour smith driver nurse tailor dancer guest child/children "
    "friend visitor",
    "food": "apple pear plum carrot cake bun pancake sandwich/sandwiches egg potato/potatoes cherry/cherries strawberry/strawberries "
    "biscuit nut bean waffle pie tomato/tomatoes banana onion sausage cookie turnip food",
    "place": "house barn bridge tower mill shop church/churches school beach/beaches harbour island garden forest farm kitchen market "
    "village field meadow castle hut road path yard room square lighthouse well park stable cabin",
    "nature": "tree stone bush/bushes hill river lake pond flower rose tulip pine oak cloud wave cliff star leaf/leaves puddle log root "
    "wind rain sky/skies sun moon storm snow",
    "thing": "thing ball kite boat drum flute lamp basket box/boxes bag bench/benches table chair fence gate wagon cart "
    "ladder bucket net rope "
    "hammer brush/brushes watch/watches bell whistle sledge scarf/scarves hat cup spoon book pencil flag shovel rake violin trumpet "
    "blanket clock window door swing bed stove letter picture shell wheel doll coat mirror pot",
    "time": "morning day evening night afternoon summer winter birthday year",
    "matter": "water paint soup milk glue tea wood colour",
    "act": "play help walk dance dream sleep rest drink plant smile hug call jump swim work ride song light try show",
}
VERBS = {  # meaning -> base, or base/third person/other forms where the usual rule does not do
    "motion": "go walk run jump swim climb dance ride hurry come follow fall roll hop skate sail push pull lift",
    "speech": "say ask call/calls/called shout whisper answer sing laugh thank tell",
    "sense": "see hear watch look find smell feel meet notice",
    "having": "have/has give take bring carry hold keep share get lose drop hide buy",
    "making": "build paint cook bake mend plant sew draw brush hammer water wash light",
    "living": "sleep eat drink rest cry smile wake live lie stand sit wait stay grow",
    "mind": "like love want know think hope remember dream need care",
    "doing": "play work help fish try open hug begin stop break shine show learn do let",
    "being": "be/is/are/am can/can",
}
ADJECTIVES = {
    "colour": "red blue green yellow white black brown grey pink",
    "size": "small big tall long little short",
    "state": "new old clean wet dry heavy light warm cold broken whole empty full quiet dark bright dirty pretty soft",
    "mood": "happy sad tired hungry thirsty calm afraid angry proud glad sleepy busy lonely worried",
    "nature": "kind brave clever shy curious friendly young strong wise cheerful lazy sick",
    "taste": "sweet fresh good ripe",
    "other": "sunny windy gone wrong safe sorry first hard easy better",
}
CLOSED = {  # class -> forms
    "determiner": "a an the this that his her its their my your no some every one two all",
    "pronoun": "I you she he it they him her them we me us who everything something nothing everybody both there mine what that",
    "preposition": "near by behind beside under in on at of with for from after into about without over to",
    "adverb": "now then soon here not again always best most too very together well away down up over today tomorrow "
    "suddenly once far home "
    "slowly quickly everywhere never so off else alone hard outside inside out nowhere why how early late tight fast ever "
    "first last only just still all",
    "conjunction": "and but or that when because as if than for",
    "particle": "to",
    "interjection": "please thanks no",
}
NAMES = {
    "she": "Mia Anna Lily Ella Nora Emma Clara Ida",
    "he": "Tom Ben Max Sam Leo Oscar Hugo Finn",
    "pet": "Rex Bella Milo Spot Luna Fluffy Pepper Coco",
}
GROUPS = {
    "child": "girl boy",
    "she": "girl mother grandmother aunt",
    "he": "boy father grandfather fisherman postman",
    "bag": "bag",
    "birthday": "birthday",
    "time_is": "warm sunny",
    "pet": "dog cat rabbit duck goat hen mouse lamb",
    "parent": "mother father grandmother grandfather",
    "work": "baker farmer teacher sailor doctor painter cook carpenter gardener miller smith nurse tailor driver singer",
    "helper": "baker farmer teacher postman neighbour carpenter aunt painter",
    "landmark": "house barn bridge tower mill tree stone bush bench fence gate hill boat well pond cart",
    "thing": "thing ball kite drum hat book bag scarf doll box",
    "animal": "duck gull crow cat dog frog rabbit horse hen squirrel goat",
    "food": "apple pear plum carrot bun pancake sandwich cherry strawberry biscuit nut waffle pie banana",
    "place": "village field park market",
    "spot": "under:bench behind:tree behind:stone under:table in:basket under:bush behind:barn under:boat beside:well "
    "in:bucket behind:fence "
    "under:bridge behind:gate under:bed in:cart beside:stove in:box behind:door",
    "colour": ADJECTIVES["colour"],
    "nature": "small brave clever shy curious kind cheerful young",
    "animal_is": "small big old young black white brown grey hungry sleepy",
    "person_is": "kind old young tall clever friendly cheerful",
    "food_is": "sweet fresh good warm",
    "place_is": "old new small big white red quiet green",
    "nature_is": "small big old tall green",
    "thing_is": "old new small big pretty heavy red blue green",
    "animal_feels": "tired hungry calm happy sleepy thirsty quiet afraid wet",
    "person_feels": "tired happy busy calm glad hungry cheerful",
    "thing_seems": "old new clean wet heavy light pretty warm dry",
    "animal_does": "sleep rest play eat drink wait swim run jump",
    "person_does": "sing work rest laugh dance wait smile walk play",
    "low": "sad worried sorry lonely",
    "high": "happy glad proud cheerful",
    "act": "swim dance paint cook sing skate fish climb ride sail sew",
    "landmark_seems": "old new wet clean small big cold quiet pretty",
    "plants": "rose tulip flower tree bush",
    "tool": "hammer rope brush ladder",
    "shelter": "hut house barn cabin mill",
}
TOPICS = {
    "sea": {
        "place": "beach harbour island lighthouse",
        "thing": "boat kite bucket net shell flag",
        "animal": "gull seal crab duck turtle swan",
        "helper": "sailor fisherman captain",
        "landmark": "boat bridge tower stone cliff hut wave lighthouse",
        "act": "swim sail fish",
    },
    "forest": {
        "place": "forest lake river hut",
        "thing": "basket bag rope whistle hat lamp",
        "animal": "fox bear squirrel owl hedgehog mouse beaver beetle",
        "helper": "carpenter shepherd painter",
        "landmark": "tree pine oak stone log hill path hut bush root",
        "act": "climb fish hop",
    },
    "kitchen": {
        "place": "kitchen shop market",
        "thing": "cup spoon pot basket box lamp",
        "animal": "cat mouse kitten puppy bee hen",
        "helper": "cook baker aunt",
        "landmark": "table chair stove window door clock bench",
        "act": "cook bake sing",
    },
    "garden": {
        "place": "garden park meadow",
        "thing": "shovel rake bucket ball swing watch",
        "animal": "bee snail rabbit frog crow hedgehog cat",
        "helper": "gardener neighbour painter",
        "landmark": "tree rose tulip fence gate bench pond bush flower",
        "act": "plant paint climb",
    },
    "farm": {
        "place": "farm field stable",
        "thing": "cart bell ladder bucket rope hat",
        "animal": "cow horse pig goat hen goose calf lamb donkey",
        "helper": "farmer shepherd smith",
        "landmark": "barn fence gate well cart field hill mill stable",
        "act": "ride work paint",
    },
    "winter": {
        "place": "hill lake village cabin",
        "thing": "sledge scarf hat coat shovel lamp",
        "animal": "fox crow bear owl rabbit dog",
        "helper": "driver doctor smith",
        "landmark": "hill pine house cabin road bridge stone lamp",
        "act": "skate sew ride",
    },
    "music": {
        "place": "square church castle",
        "thing": "drum flute violin trumpet bell whistle",
        "animal": "cat dog crow swan horse duck",
        "helper": "singer dancer teacher",
        "landmark": "tower church window bench house flag door bell",
        "act": "dance sing play",
    },
    "school": {
        "place": "school yard square",
        "thing": "book pencil bag ball clock letter",
        "animal": "mouse dog cat crow squirrel snail",
        "helper": "teacher nurse driver",
        "landmark": "table chair door window swing fence flag tree",
        "act": "draw paint swim",
    },
}
RULES = {
    "WEATHER": "( sunny | cold | windy | warm | quiet | bright | grey )",
    "DAY": "( morning | day | afternoon | evening )",
    "TIME": """
        [ one ( WEATHER | ) DAY ]
        on [ a WEATHER DAY ]
        early [ this morning ]
        late [ this afternoon ]
        after [ the ( rain | storm | snow ) ]
    """,
    "WHERE": "( outside in [ the yard ] | out on [ the road ] | on [ the road ] to/preposition the:place )",
    "WHEN": "( early | after [ the rain ] | in [ the evening ] )",
    "OPEN": """
        ^name:hero =be a+:hero who =live ( near | by ) the:place .
        ^name:hero =live ( near | by ) the:place with own:hero:parent .
        TIME , ^name:hero =go to/preposition the:place .
        TIME , ^name:hero =walk ( slowly | quickly | alone ) to/preposition the:place .
        it is [ a WEATHER DAY ] , and ^name:hero =be WHERE .
        ^name:hero =live in [ a ( small | old | white | red | green ) ( house | hut | cabin ) ] near the:place .
        [ this ( summer | winter ) ] ^name:hero =stay with own:hero:parent by the:place .
        everybody by the:place =know name:hero , [ a+:hero ] who always =take [ a long walk/noun ] WHEN .
    """,
    "STATE_colour": """
        ^name:hero =have a+:thing .
        ^own:hero:thing =be ~@thing .
        ^own:hero:parent =give him:hero a+:thing .
        ^he:hero =carry a+:thing with him:hero everywhere .
        for/preposition own:hero:birthday ^he:hero =get a+:thing .
        of [ all/determiner things ] that/pronoun ^he:hero =have , ^he:hero =love [ one thing ] most , a+:thing .
    """,
    "STATE_name": """
        ^own:hero:pet =be called name:pet .
        ^he:hero =have a:pet called name:pet .
        ^name:pet =be own:hero:pet , and ^he:pet =follow him:hero everywhere .
        ^name:hero =go nowhere without own:hero:pet , who =be called name:pet .
    """,
    "STATE_food": """
        ^name:hero =like a:food best .
        in [ the morning ] ^he:hero always =eat a:food .
        ^name:hero =think that/conjunction nothing is as good as a:food .
        what ^he:hero =like best of [ all/determiner food ] is a:food .
    """,
    "STATE_work": """
        ^own:hero:parent =be a:work .
        ^own:hero:parent =work as a:work .
        ^own:hero:parent , who =be a:work , =be always busy .
    """,
    "SCENE": """
        AGREEMENT
        AGREEMENT
        AGREEMENT
        AGREEMENT
        AGREEMENT
        AGREEMENT
        AGREEMENT
        AGREEMENT
        AGREEMENT
        AGREEMENT
        AGREEMENT
        AGREEMENT
        ^name:hero =watch the:%animal near the:%landmark .
        ^the:%helper =water the:%plants .
        ^the:%helper =dream of [ a ( long | ) ( sleep/noun | rest/noun | swim/noun | ride/noun ) ] .
        from the:place ^he:hero can :see a:%landmark and a:%landmark .
        ^the:%helper ( =brush | =hug | =wash ) the:%animal .
        « let us LET , » ^name:hero =say .
        ^the:%helper =carry [ a ( big | small | pretty ) ( fish/noun | plant/noun | watch/noun | light/noun | brush/noun ) ] .
        ^the:%animal.p can ( :play | :jump | :smile | :dance | :swim | :sleep ) .
        ^the:%helper =hammer , and ^name:hero =bring a:%tool .
        ^the:%helper =plant a:%plants near the:%landmark .
    """,
    "LET": "( walk/verb | ride/verb | swim/verb | rest/verb | work/verb | fish/verb | watch/verb the:%animal.p | plant/verb something )",
    "AGREEMENT": """
        ^the*:%animal =be ~%animal_feels .
        ^the*:%animal =%animal_does .
        ^the*:%animal =be ~%animal_feels and =%animal_does .
        ^the*:%landmark =be ~%landmark_seems .
        ^the*:%landmark =stand in [ the sun ] .
        ^the*:%helper =be ~%person_feels .
        ^the*:%helper =%person_does .
        today ^the*:%animal =be ~%animal_feels .
        ^name:hero =see that/conjunction ^the*:%animal =be ~%animal_feels .
        ^name:hero =know that/conjunction ^the*:%landmark =be ~%landmark_seems .
        ^the*:%thing =be ~%thing_seems .
        in [ the sun/noun ] ^the*:%thing =look ~%thing_seems .
    """,
    "LOW": """
        ^name:hero =be ~%low .
        ^he:hero =sit down and =cry .
        now ^name:hero =be ~%low , and ^he:hero =need [ help/noun ] .
        ^he:hero =feel ~%low .
    """,
    "HIGH": """
        ^name:hero =be ~%high .
        now ^he:hero =be ~%high again .
        ^he:hero =smile and =feel ~%high .
        with [ a ( big | bright | happy ) smile/noun ] ^he:hero =jump up and down .
    """,
    "MEET": """
        then ^a+:helper =come by/preposition .
        on [ the road ] ^he:hero =meet a+:helper .
        ^a+:helper =hear him:hero and =stop .
        not far away ^a+:helper =be at [ work/noun ] .
    """,
    "ASK": """
        « what is wrong ? » ^the:helper =ask .
        « why are you ( sad | so quiet ) ? » ^the:helper =ask .
        « can you :help me ? » ^name:hero =ask .
        « please :help me ! » ^name:hero =call .
        « you :look ( sad | worried ) , » ^the:helper =say .
    """,
    "LOST": """
        ^he:hero =want to/particle :play with own:hero:thing , but ^the:thing =be gone !
        ( then | suddenly ) [ the ^wind ] =come and =take the:thing .
        on [ the road ] ^he:hero =drop the:thing , and now ^he:hero can not :find him:thing .
        when ^name:hero =wake , ^the:thing =be not there .
    """,
    "SEARCH": """
        ^he:hero =look behind the:%landmark and near the:%landmark , but ^the:thing =be not there .
        ^he:hero =look everywhere , but ^he:hero =find only a:%tool .
        first/adverb ^he:hero =look by the:%landmark , then by the:%landmark .
        after [ a long walk/noun ] ^he:hero =be ~tired , but ^the:thing =be still gone .
    """,
    "TELL": """
        « ^the:thing =be as:spot the:spot , » ^the:helper =say .
        « :look as:spot the:spot , » ^the:helper =answer .
        « I :see something as:spot the:spot , » ^the:helper =say .
        « ^a:%animal.s =have him:thing as:spot the:spot , » ^the:helper =whisper .
    """,
    "FOUND": """
        ^name:hero =run to/preposition the:spot , and there ^the:thing =be !
        ^he:hero =look as:spot the:spot and =find own:hero:thing .
        ^he:hero =hurry to/preposition the:spot . ^the:thing =be ( wet | dirty | cold ) but ( whole | safe ) .
    """,
    "BREAK": """
        ^name:hero =play with own:hero:thing . suddenly ^he:thing =fall and =break .
        ^he:hero =run too fast and =fall . now ^the:thing =be broken .
        ^a:%animal.s =jump on the:thing , and ^he:thing =break .
        but when ^he:hero =lift the:thing , ^he:hero =see that/conjunction ^he:thing =be broken .
    """,
    "MEND": """
        « I :have a:tool , » ^the:helper =say . ^he:hero =hold the:thing , and ^the:helper =mend him:thing .
        ^the:helper =take a:tool and [ some ( glue | rope | paint/noun | wood ) ] . soon ^the:thing =be whole again .
        « that/pronoun is [ easy work/noun ] , » ^the:helper =say , and with a:tool ^he:helper =mend the:thing .
        ^the:helper =show name:hero how to/particle :mend the:thing with a:tool .
    """,
    "NEED": """
        near the:%landmark ^name:hero =meet a+:animal .
        behind the:%landmark ^a+:animal =lie and =wait .
        ^name:hero =hear [ a ( small | quiet ) call/noun ] . behind the:%landmark ^a+:animal =sit .
        by the:%landmark ^a+:animal =sit and =look at name:hero .
    """,
    "HUNGRY": """
        ^the:animal =be ~hungry . « have you [ some food ] ? » ^he:animal =ask .
        ^the:animal =be ~%low , for/conjunction ^he:animal =have nothing to/particle :eat .
        « I am so hungry that/conjunction I can not :sleep , » ^the:animal =whisper .
        « ^everybody else/adverb =have [ food ] , » ^the:animal =say and =cry .
    """,
    "GIVE": """
        ^name:hero =have a:food in own:hero:bag . ^he:hero =give him:food to/preposition the:animal .
        ^he:hero =give the:animal a:food and [ some ( water/noun | milk ) ] .
        « you can have a:food , » ^name:hero =say .
        from own:hero:bag ^name:hero =take a:food and [ a drink/noun ] for/preposition the:animal .
    """,
    "THANK": """
        ^the:animal =eat everything and =be ~%high .
        « thanks/interjection , » ^the:animal =say . « now we are [ friends ] . ».
        ^the:animal =dance [ a little dance/noun ] , for/conjunction now ^he:animal =be ~%high .
        from [ that/determiner day ] ^the:animal =follow name:hero everywhere .
    """,
    "STORM": """
        suddenly [ the ^sky ] =be ~dark , and [ a ( big | ) ^storm ] =begin .
        then [ the ( ^rain | ^snow ) ] =come , and soon ^name:hero =be ( ~wet | ~cold ) .
        in [ the evening ] [ a ( cold | big ) ^wind ] =come , and [ the ^road ] =be ~dark .
    """,
    "SHELTER": """
        not far away ^he:hero =see [ a light/noun ] . it is a:shelter .
        ^he:hero =run to/preposition a:shelter and =call for/preposition [ help/noun ] .
        behind the:%landmark ^he:hero =find a:shelter with [ a light/noun ] in [ the window ] .
    """,
    "WARM": """
        ^the:helper =open [ the door ] . « come in , » ^he:helper =say and =give him:hero [ a warm drink/noun ] .
        inside ^a+:helper =light [ a lamp ] and =cook [ some soup ] for/preposition name:hero .
        « please come in and rest/verb , » ^a+:helper =say . there is [ ( warm | good ) ( soup | milk | tea ) ] on [ the stove ] .
    """,
    "AFTER": """
        in [ the morning ] [ the ^storm ] =be over/adverb and [ the ^sky ] =be ~bright .
        after [ a ( long | good ) sleep/noun ] ^name:hero =wake , and [ the ^sun ] =shine .
        soon [ the ^wind ] =be ~quiet , and ^name:hero can :go home .
    """,
    "GIFT": """
        tomorrow is [ the birthday ] of own:hero:parent . ^name:hero =want to/particle MAKE .
        ^name:hero =want to/particle MAKE for/preposition own:hero:parent .
    """,
    "MAKE": "( :paint [ a picture ] | :bake [ a cake ] | :build [ a box ] | :sew [ a bag ] | :cook [ a soup ] | :draw [ a "
    "flag ] | :plant [ a rose ] )",
    "LACK": """
        but ^he:hero =have no:tool and does not know/verb how to/particle :begin .
        but it is [ hard/adjective work/noun ] , and ^he:hero can not :do it alone .
        ^he:hero =try once , then again , but it is not good .
        first/adverb ^he:hero =need a:tool .
    """,
    "HELP": """
        ^name:friend =come with a:tool and =help him:hero .
        « let/verb me :help , » ^name:friend =say . ^he:friend =have a:tool in own:friend:bag .
        ^name:friend =hear it and =bring a:tool from home .
    """,
    "JOY": """
        ^own:hero:parent =be ~%high and =give him:hero [ a hug/noun ] .
        « is that/pronoun for/preposition me ? » ^own:hero:parent =ask and =laugh .
        ^own:hero:parent =smile . « thank you both , » ^he:parent =say .
    """,
    "BOTH": """
        ^name:friend =want to/particle :play with the:thing too .
        then ^name:friend =come and =take the:thing .
        « give me the:thing ! » ^name:friend =shout .
        ^name:friend =have nothing to/particle :play with and =look at the:thing .
    """,
    "QUARREL": """
        « no/interjection , the:thing is mine ! » ^name:hero =shout .
        ^they =shout , and ^they =pull at the:thing .
        ^name:hero =hold the:thing tight and =push name:friend . now both are angry .
    """,
    "SHARE": """
        « you can :share , » ^the:helper =say . first/adverb ^name:friend =play with the:thing , then ^name:hero =do .
        ^the:helper =laugh . « [ two friends ] can :play better than [ one/determiner ] , » ^he:helper =say . ^they =share the:thing .
        « I am sorry , » ^name:friend =say . « so am I , » ^name:hero =answer . ^they =play together .
    """,
    "RUN": """
        suddenly ^name:pet =see a:%animal.s and =run away .
        ^the:pet =hear [ a call/noun ] and =run off behind the:%landmark .
        when ^name:hero =look up , ^name:pet =be gone .
    """,
    "CALL": """
        « name:pet ! name:pet ! » ^he:hero =call , but ^the:pet =do not come .
        ^he:hero =call and =look behind the:%landmark , but ^name:pet =be not there .
    """,
    "TELL_pet": """
        « ^the:pet =sit as:spot the:spot , » ^the:helper =say .
        « I :hear something as:spot the:spot , » ^the:helper =answer .
        « look as:spot the:spot , » ^a:%animal.s =whisper .
    """,
    "FOUND_pet": """
        ^name:hero =run to/preposition the:spot , and there ^name:pet =sit .
        ^he:hero =look as:spot the:spot . there ^name:pet =sleep !
        by the:spot ^name:pet =play with a:%animal.s .
    """,
    "WISH": """
        ^name:hero =want to/particle :@act , but ^he:hero can not .
        ^the:%animal.p =@act , and ^name:hero =want to/particle :@act too .
        [ every night ] ^name:hero =dream that/conjunction ^he:hero can :@act .
        « I :want to/particle :@act , » ^name:hero =say .
    """,
    "TRY": """
        ^he:hero =try , but it is too hard/adjective .
        ^he:hero =try again and again , but something is always wrong .
        [ the first/adjective try/noun ] is not good , and ^name:friend =laugh .
    """,
    "TEACH": """
        « I can :show you , » ^the:helper =say . ^he:helper =@act slowly , and ^name:hero =watch .
        ^the:helper =help him:hero [ every day ] . « look at me and do as I do , » ^he:helper =say .
        « not so fast , » ^the:helper =say . « first/adverb we :rest , then we :@act . ».
    """,
    "CAN": """
        now ^name:hero can :@act !
        at last ^name:hero =@act , and ^name:friend =watch .
        then ^he:hero =@act as well/adverb as ^the:helper .
        in [ the evening ] ^they =@act together .
    """,
    "RECALL_colour": """
        « [ what colour/noun ] is your:thing ? » ^name:friend =ask . « ^he:thing =be ~@thing , » ^name:hero =say .
        ^name:hero =hold own+:hero:thing tight .
        ^name:friend =like the+:thing too .
        in [ the sun/noun ] ^the+:thing =look ~%thing_seems .
        at home ^name:hero =paint [ a picture ] of the+:thing .
        « that/pronoun is [ a ( good | pretty ) colour/noun ] , » ^name:friend =say , for/conjunction ^the:thing =be ~@thing .
    """,
    "RECALL_name": """
        « come , name:pet ! » ^name:hero =call .
        ^name:pet =jump up and =want [ a hug/noun ] .
        « what is your:pet called ? » ^the:%helper.s =ask . « name:pet , » ^name:hero =say .
        ^name:hero =give name:pet [ some ( water/noun | milk ) ] .
    """,
    "RECALL_food": """
        at home there are a:food on [ the table ] , for/conjunction ^name:hero =like him:food best .
        « what do you :want to/particle :eat ? » ^own:hero:parent =ask . « a:food , » ^name:hero =say .
        ^own:hero:parent =buy a:food for/preposition him:hero .
        ^name:friend =bring a:food , and ^name:hero =eat him:food all/adverb .
    """,
    "RECALL_work": """
        then ^own:hero:parent =come home . ^the:work =be ~tired from [ the work/noun ] .
        « what does your:parent do ? » ^name:friend =ask . « ^he:parent =be a:work , » ^name:hero =say .
        ^own:hero:parent =tell name:friend how ^a:work =work .
    """,
    "END": """
        ^they =go home together .
        ( [ that/determiner night ] | at [ night ] ) ^name:hero =sleep well/adverb .
        at [ night ] ^name:hero =have [ a good dream/noun ] .
        it is [ a good day ] .
        [ the ^moon ] =shine over/preposition the:place , and ^everybody =sleep .
        ^they =be [ friends ] for/preposition ever .
        then ^name:hero =go for/preposition [ a ( walk/noun | swim/noun | ride/noun ) ] with name:friend .
        in [ the evening ] ^they =go to/particle :see [ a play/noun ] at [ the school ] .
    """,
}


def phrase(form: str, thing: Thing, with_adjective: bool, owner: Thing | None) -> list[Piece]:
    """a red kite, the red kites, her red kite; `bare` is without article."""
    noun, i = thing.noun, int(thing.plural)
    pieces = [Piece(noun.forms[i], "noun", noun.lemma, noun.meaning, thing.number, "noun", lambda other: other.forms[i])]
    if with_adjective and (adjective := thing.adjective):
        pieces.insert(
            0, Piece(adjective.forms[0], "adjective", adjective.lemma, adjective.meaning, "", "adjective", lambda other: other.forms[0])
        )
    article = form
    if form in ("own", "his"):
        article = "their" if not owner or owner.plural else {"she": "her", "he": "his", "it": "its"}[owner.gender]
    elif form == "a":
        article = "" if thing.plural else "an" if pieces[0].text[0] in "aeiou" else "a"
    elif form == "bare":
        article = ""
    return [Piece(article, "determiner", "a" if form == "a" else article), *pieces] if article else pieces


def pronoun(form: str, thing: Thing) -> str:
    if thing.plural:
        return {"he": "they", "him": "them"}[form]
    return {"he": thing.gender, "him": {"she": "her", "he": "him", "it": "it"}[thing.gender]}[form]


def agreeing(word: Verb | Adjective, plural: bool, neuter: bool) -> tuple[str, str]:
    """sleeps, sleep. Adjectives do not agree."""
    if isinstance(word, Adjective):
        return word.forms[0], ""
    base, third = ("are", "is") if word.lemma == "be" else word.forms[:2]
    if base == third:
        return base, ""
    return (base, third) if plural else (third, base)


def third_person(base: str) -> str:
    """Of a verb; the plural of a noun is spelled in the same way."""
    if base.endswith(("s", "sh", "ch", "x", "o")):
        return base + "es"
    return base[:-1] + "ies" if base[-1] == "y" and base[-2] not in "aeiou" else base + "s"


def lexicon() -> Lexicon:
    nouns = [
        (lemma, other, meaning) for meaning, words in NOUNS.items() for lemma, _, other in (word.partition("/") for word in words.split())
    ]
    verbs = [(word.split("/"), meaning) for meaning, words in VERBS.items() for word in words.split()]
    return Lexicon(
        nouns={lemma: Noun(lemma, meaning, (lemma, other or third_person(lemma))) for lemma, other, meaning in reversed(nouns)},
        adjectives={lemma: Adjective(lemma, meaning, (lemma,)) for meaning, words in ADJECTIVES.items() for lemma in words.split()},
        verbs={forms[0]: Verb(forms[0], meaning, (*forms, third_person(forms[0]))[: max(2, len(forms))]) for forms, meaning in verbs},
        closed=CLOSED,
        names=NAMES,
        groups=GROUPS,
        topics=TOPICS,
        rules=RULES,
        prepositions=("near", "by", "behind", "beside"),
        phrase=phrase,
        pronoun=pronoun,
        agreeing=agreeing,
    )
