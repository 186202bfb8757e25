"""Swedish: words, phrases, rules. How rules are read stands in grammar.py; which are told in which order, in __init__.py."""

from andrea.data.stories.grammar import Adjective, Lexicon, Noun, Piece, Thing, Verb

NOUNS = {  # meaning -> singular, with its article, plural, with its article; - stands for the first
    "animal": "hund -en -ar -arna, katt -en -er -erna, kanin -en -er -erna, räv -en -ar -arna, björn -en -ar -arna, anka -n "
    "ankor ankorna, "
    "groda -n grodor grodorna, höna -n hönor hönorna, häst -en -ar -arna, ko -n -r -rna, get -en -ter -terna, gris -en -ar -arna, "
    "får -et får fåren, mus -en möss mössen, uggla -n ugglor ugglorna, kråka -n kråkor kråkorna, mås -en -ar -arna, säl -en -ar -arna, "
    "krabba -n krabbor krabborna, fisk -en -ar -arna, ekorre -n ekorrar ekorrarna, igelkott -en -ar -arna, hjort -en -ar -arna, "
    "svan -en -ar -arna, åsna -n åsnor åsnorna, gås -en gäss gässen, kalv -en -ar -arna, lamm -et lamm lammen, valp -en -ar -arna, "
    "kattunge -n kattungar kattungarna, sköldpadda -n sköldpaddor sköldpaddorna, snigel -n sniglar sniglarna, bi -et -n -na, "
    "skalbagge -n skalbaggar skalbaggarna, bäver -n bävrar bävrarna, ren -en -ar -arna",
    "person": "flicka -n flickor flickorna, pojke -n pojkar pojkarna, mamma -n mammor mammorna, pappa -n pappor papporna, "
    "mormor -n mormödrar mormödrarna, morfar -n morfäder morfäderna, bagare -n bagare bagarna, bonde -n bönder bönderna, "
    "lärare -n lärare lärarna, sjöman -nen sjömän sjömännen, läkare -n läkare läkarna, målare -n målare målarna, "
    "sångare -n sångare sångarna, kock -en -ar -arna, snickare -n snickare snickarna, herde -n herdar herdarna, "
    "trädgårdsmästare -n trädgårdsmästare trädgårdsmästarna, kapten -en -er -erna, mjölnare -n mjölnare mjölnarna, "
    "brevbärare -n brevbärare brevbärarna, fiskare -n fiskare fiskarna, granne -n grannar grannarna, smed -en -er -erna, "
    "kusk -en -ar -arna, sköterska -n sköterskor sköterskorna, skräddare -n skräddare skräddarna, dansare -n dansare dansarna, "
    "moster -n mostrar mostrarna, vän -nen -ner -nerna, barn -et barn barnen",
    "food": "äpple -t -n -na, päron -et päron päronen, plommon -et plommon plommonen, morot -en morötter morötterna, bulle "
    "-n bullar bullarna, "
    "pannkaka -n pannkakor pannkakorna, smörgås -en -ar -arna, körsbär -et körsbär körsbären, jordgubbe -n jordgubbar jordgubbarna, "
    "kex -et kex kexen, nöt -en -ter -terna, våffla -n våfflor våfflorna, paj -en -er -erna, banan -en -er -erna, kaka -n kakor kakorna, "
    "bär -et bär bären, korv -en -ar -arna, tårta -n tårtor tårtorna",
    "place": "hus -et hus husen, lada -n lador ladorna, bro -n -ar -arna, torn -et torn tornen, kvarn -en -ar -arna, butik "
    "-en -er -erna, "
    "kyrka -n kyrkor kyrkorna, skola -n skolor skolorna, strand -en stränder stränderna, hamn -en -ar -arna, ö -n -ar -arna, "
    "trädgård -en -ar -arna, skog -en -ar -arna, gård -en -ar -arna, kök -et kök köken, torg -et torg torgen, by -n -ar -arna, "
    "fält -et fält fälten, äng -en -ar -arna, slott -et slott slotten, koja -n kojor kojorna, väg -en -ar -arna, stig -en -ar -arna, "
    "fyr -en -ar -arna, brunn -en -ar -arna, park -en -er -erna, stall -et stall stallen, stuga -n stugor stugorna, "
    "damm -en -ar -arna, lägenhet -en -er -erna",
    "nature": "träd -et träd träden, sten -en -ar -arna, buske -n buskar buskarna, kulle -n kullar kullarna, flod -en -er -erna, "
    "sjö -n -ar -arna, blomma -n blommor blommorna, ros -en -or -orna, tulpan -en -er -erna, tall -en -ar -arna, gran -en -ar -arna, "
    "ek -en -ar -arna, våg -en -or -orna, klippa -n klippor klipporna, rot -en rötter rötterna, stock -en -ar -arna, vind -en -ar -arna, "
    "regn -et regn regnen, himmel himlen himlar himlarna, sol -en -ar -arna, måne -n månar månarna, storm -en -ar -arna, snö -n snö snön",
    "thing": "sak -en -er -erna, boll -en -ar -arna, drake -n drakar drakarna, båt -en -ar -arna, trumma -n trummor trummorna, "
    "flöjt -en -er -erna, lampa -n lampor lamporna, korg -en -ar -arna, låda -n lådor lådorna, väska -n väskor väskorna, "
    "bänk -en -ar -arna, bord -et bord borden, stol -en -ar -arna, staket -et staket staketen, grind -en -ar -arna, vagn -en -ar -arna, "
    "kärra -n kärror kärrorna, stege -n stegar stegarna, hink -en -ar -arna, nät -et nät näten, rep -et rep repen, "
    "hammare -n hammare hammarna, borste -n borstar borstarna, klocka -n klockor klockorna, visselpipa -n visselpipor visselpiporna, "
    "släde -n slädar slädarna, halsduk -en -ar -arna, hatt -en -ar -arna, kopp -en -ar -arna, sked -en -ar -arna, "
    "bok -en böcker böckerna, penna -n pennor pennorna, flagga -n flaggor flaggorna, spade -n spadar spadarna, kratta -n "
    "krattor krattorna, "
    "fiol -en -er -erna, trumpet -en -er -erna, fönster fönstret fönster fönstren, dörr -en -ar -arna, gunga -n gungor gungorna, "
    "säng -en -ar -arna, spis -en -ar -arna, brev -et brev breven, snäcka -n snäckor snäckorna, docka -n dockor dockorna, "
    "rock -en -ar -arna, såg -en -ar -arna, kam -men -mar -marna, spik -en -ar -arna, ljus -et ljus ljusen, bild -en -er -erna",
    "time": "morgon -en morgnar morgnarna, dag -en -ar -arna, kväll -en -ar -arna, natt -en nätter nätterna, "
    "eftermiddag -en -ar -arna, sommar -en somrar somrarna, vinter -n vintrar vintrarna, födelsedag -en -ar -arna",
    "matter": "vatten vattnet vatten vattnen, färg -en -er -erna, soppa -n soppor sopporna, mjölk -en mjölk mjölken, lim "
    "-met lim limmen, "
    "te -et -er -erna, trä -et -n -na, mat -en mat maten",
    "act": "hjälp -en hjälp hjälpen, promenad -en -er -erna, dans -en -er -erna, dröm -men -mar -marna, lek -en -ar -arna, "
    "kram -en -ar -arna, klapp -en -ar -arna, vila -n vilor vilorna, fråga -n frågor frågorna, visa -n visor visorna, resa "
    "-n resor resorna, "
    "arbete -t -n -na, rop -et rop ropen, försök -et försök försöken, slut -et slut sluten, leende -t -n -na",
}
VERBS = {  # meaning -> infinitive, or infinitive/present tense/imperative where an r does not do
    "motion": "gå springa/springer hoppa simma klättra dansa rida/rider skynda komma/kommer/kom följa/följer falla/faller "
    "rulla segla gunga "
    "resa/reser åka/åker vandra knuffa lyfta/lyfter dra",
    "speech": "säga/säger fråga ropa viska svara sjunga/sjunger skratta tacka berätta förlåta/förlåter/förlåt",
    "sense": "se höra/hör titta hitta känna/känner märka/märker möta/möter leta",
    "having": "ha ge ta bära/bär hålla/håller dela få tappa gömma/gömmer köpa/köper hämta plocka",
    "making": "bygga/bygger måla baka laga plantera sy rita borsta såga spika vattna tända/tänder kratta koka damma kamma",
    "living": "sova/sover äta/äter dricka/dricker vila gråta/gråter le vakna bo sätta/sätter ligga/ligger stå sitta/sitter vänta stanna",
    "mind": "gilla älska vilja/vill veta/vet tro drömma/drömmer tycka/tycker behöva/behöver",
    "doing": "leka/leker spela arbeta hjälpa/hjälper/hjälp fiska försöka/försöker öppna krama klappa börja lysa/lyser "
    "skina/skiner visa lära/lär "
    "göra/gör sluta",
    "being": "vara/är bli heta/heter kunna/kan",
}
ADJECTIVES = {  # meaning -> common, neuter, plural, and with the article where that is not the plural; - stands for the first
    "colour": "röd rött -a, blå -tt -a, grön -t -a, gul -t -a, vit -t -a, svart - -a, brun -t -a, grå -tt -a",
    "size": "liten litet små lilla, stor -t -a, hög -t -a, lång -t -a, kort - -a",
    "state": "ny -tt -a, gammal -t gamla, ren -t -a, våt vått -a, torr -t -a, tung -t -a, lätt - -a, varm -t -a, kall -t -a, "
    "trasig -t -a, "
    "hel -t -a, tom -t -ma, mörk -t -a, ljus -t -a, smutsig -t -a, vacker -t vackra, mjuk -t -a, tyst - -a, fin -t -a",
    "mood": "glad glatt -a, ledsen ledset ledsna, trött - -a, hungrig -t -a, törstig -t -a, lugn -t -a, arg -t -a, stolt - "
    "-a, sömnig -t -a, "
    "ensam -t -ma, orolig -t -a, nöjd nöjt -a",
    "nature": "snäll -t -a, modig -t -a, klok -t -a, blyg -t -a, nyfiken nyfiket nyfikna, vänlig -t -a, ung -t -a, stark -t "
    "-a, duktig -t -a",
    "taste": "söt sött -a, färsk -t -a, god gott -a",
    "other": "solig -t -a, blåsig -t -a, svår -t -a, annan annat andra, först första första",
}
CLOSED = {  # class -> forms
    "determiner": "en ett den det de min mitt mina din ditt dina sin sitt sina hans hennes dess deras ingen inget inga någon något några "
    "varje två tre alla vilken all lite",
    "pronoun": "jag du han hon den det vi ni de mig dig henne honom oss dem sig allt något ingenting ingen alla båda man som vad min en",
    "preposition": "vid nära bakom bredvid under i på av med till från för efter om utan över hos in mot åt ur",
    "adverb": "nu sedan då snart där inne inte igen alltid bäst för mycket tillsammans bort ner upp idag imorgon plötsligt "
    "hem hemma långsamt snabbt överallt ensam borta ute inne ingenstans tidigt sent hårt först bara också så fram kvar redan mest sönder "
    "länge hur varför nära fort mer bättre bra lika fel långt",
    "conjunction": "och men eller att när eftersom om som för än innan",
    "particle": "att",
    "interjection": "nej ja tack snälla",
}
NAMES = {
    "she": "Mia Anna Lisa Elsa Nora Emma Klara Ida",
    "he": "Tom Ben Max Sam Leo Oskar Hugo Olle",
    "pet": "Rex Bella Milo Prick Luna Fluff Pepp Kurre",
}
GROUPS = {
    "child": "flicka pojke",
    "she": "flicka mamma mormor moster sköterska",
    "he": "pojke pappa morfar sjöman",
    "bag": "väska",
    "birthday": "födelsedag",
    "time_is": "varm solig",
    "pet": "hund katt kanin anka get höna mus lamm",
    "parent": "mamma pappa mormor morfar",
    "work": "bagare bonde lärare sjöman läkare målare kock snickare mjölnare smed sköterska skräddare kusk sångare",
    "helper": "bagare bonde lärare brevbärare granne snickare moster målare",
    "landmark": "hus lada bro torn kvarn träd sten buske bänk staket grind kulle båt brunn kärra",
    "thing": "sak boll drake trumma hatt bok väska halsduk docka låda",
    "animal": "anka mås kråka katt hund groda kanin häst höna ekorre get",
    "food": "äpple päron plommon morot bulle pannkaka smörgås körsbär jordgubbe kex nöt våffla paj banan",
    "place": "by fält park torg",
    "spot": "under:bänk bakom:träd bakom:sten under:bord i:korg under:buske bakom:lada under:båt bredvid:brunn i:hink bakom:staket "
    "under:bro bakom:grind under:säng i:kärra bredvid:spis i:låda bakom:dörr",
    "colour": "röd blå grön gul vit svart brun grå",
    "nature": "liten modig klok blyg nyfiken snäll glad ung",
    "animal_is": "liten stor gammal ung svart vit brun grå hungrig sömnig",
    "person_is": "snäll gammal ung lång klok vänlig glad",
    "food_is": "söt färsk god varm",
    "place_is": "gammal ny liten stor vit röd tyst grön",
    "nature_is": "liten stor gammal hög grön",
    "thing_is": "gammal ny liten stor fin tung röd blå grön",
    "animal_feels": "trött hungrig lugn glad sömnig törstig tyst våt",
    "person_feels": "trött glad lugn nöjd hungrig stolt tyst",
    "thing_seems": "gammal ny ren våt tung lätt fin varm torr ljus",
    "landmark_seems": "gammal ny våt ren liten stor kall tyst vacker",
    "animal_does": "sova vila leka äta dricka vänta simma springa hoppa",
    "person_does": "sjunga arbeta vila skratta dansa vänta le spela",
    "low": "ledsen orolig ensam",
    "high": "glad stolt nöjd",
    "act": "simma dansa måla baka sjunga fiska klättra rida segla sy",
    "plants": "ros tulpan blomma träd buske",
    "tool": "hammare rep borste stege såg kam spik",
    "shelter": "koja hus lada stuga kvarn",
}
TOPICS = {
    "sea": {
        "place": "strand hamn ö fyr",
        "thing": "båt drake hink nät snäcka flagga",
        "animal": "mås säl krabba anka fisk sköldpadda svan",
        "helper": "sjöman fiskare kapten",
        "landmark": "båt bro torn sten klippa koja våg fyr",
        "act": "simma segla fiska",
    },
    "forest": {
        "place": "skog sjö flod koja",
        "thing": "korg väska rep visselpipa hatt lampa",
        "animal": "räv björn ekorre uggla igelkott hjort bäver skalbagge",
        "helper": "snickare herde målare",
        "landmark": "träd tall ek gran sten stock kulle stig koja buske rot",
        "act": "klättra fiska hoppa",
    },
    "kitchen": {
        "place": "kök butik torg",
        "thing": "kopp sked korg låda lampa",
        "animal": "katt mus kattunge valp bi höna",
        "helper": "kock bagare moster",
        "landmark": "bord stol spis fönster dörr klocka bänk",
        "act": "baka sjunga laga",
    },
    "garden": {
        "place": "trädgård park äng",
        "thing": "spade kratta hink boll gunga klocka",
        "animal": "bi snigel kanin groda kråka igelkott katt",
        "helper": "trädgårdsmästare granne målare",
        "landmark": "träd ros tulpan staket grind bänk damm buske blomma",
        "act": "kratta måla klättra",
    },
    "farm": {
        "place": "gård fält stall",
        "thing": "kärra klocka stege hink rep hatt",
        "animal": "ko häst gris får get höna gås kalv lamm åsna",
        "helper": "bonde herde smed",
        "landmark": "lada staket grind brunn kärra fält kulle kvarn stall",
        "act": "rida arbeta måla",
    },
    "winter": {
        "place": "kulle sjö by stuga",
        "thing": "släde halsduk hatt rock spade lampa",
        "animal": "räv kråka hjort uggla kanin ren",
        "helper": "kusk läkare smed",
        "landmark": "kulle tall hus stuga väg bro sten lampa gran",
        "act": "åka sy rida",
    },
    "music": {
        "place": "torg kyrka slott",
        "thing": "trumma flöjt fiol trumpet klocka visselpipa",
        "animal": "katt hund kråka svan häst anka",
        "helper": "sångare dansare lärare",
        "landmark": "torn kyrka fönster bänk hus flagga dörr klocka",
        "act": "dansa sjunga spela",
    },
    "school": {
        "place": "skola gård torg",
        "thing": "bok penna väska boll klocka brev",
        "animal": "mus hund katt kråka ekorre snigel",
        "helper": "lärare sköterska kusk",
        "landmark": "bord stol dörr fönster gunga staket flagga träd",
        "act": "rita måla gunga",
    },
}
RULES = {
    "WEATHER": "( solig | kall | blåsig | varm | tyst | ljus/adjective | grå )",
    "DAY": "( morgon | dag | eftermiddag | kväll )",
    "TIME": """
        [ en/determiner ( WEATHER | ) DAY ]
        på/preposition [ morgonen ]
        sent på/preposition [ kvällen ]
        efter [ ( regnet | stormen | snön ) ]
    """,
    "WHERE": "( ute på [ gården ] | på [ vägen ] | på [ vägen ] till the:place )",
    "WHEN": "( tidigt | efter [ regnet ] | på [ kvällen ] )",
    "OPEN": """
        ^name:hero =vara a+:hero som/pronoun =bo ( nära/preposition | vid ) the:place .
        ^name:hero =bo ( nära/preposition | vid ) the:place med own:hero:parent .
        TIME =gå ^name:hero till the:place .
        TIME =vandra ^name:hero ( långsamt | snabbt | ensam/adverb ) till the:place .
        det/pronoun =vara [ en/determiner WEATHER DAY ] , och ^name:hero =vara WHERE .
        ^name:hero =bo i [ ett/determiner ( litet | gammalt | vitt | rött | grönt ) hus ] nära/preposition the:place .
        ^name:hero =bo i [ en/determiner ( liten | gammal | vit | röd | grön ) ( stuga | koja ) ] vid the:place .
        på [ ( sommaren | vintern ) ] =bo ^name:hero hos own:hero:parent vid the:place .
        alla/pronoun vid the:place =känna name:hero , [ a+:hero ] som/pronoun alltid =ta [ en/determiner lång promenad ] WHEN .
    """,
    "STATE_colour": """
        ^name:hero =ha a+:thing .
        ^his:hero:thing =vara ~@thing .
        ^his:hero:parent =ge him:hero a+:thing .
        ^he:hero =bära alltid a+:thing med sig .
        på own:hero:birthday =få ^he:hero a+:thing .
        mest av [ allt ] =älska ^he:hero [ en/determiner sak ] , a+:thing .
    """,
    "STATE_name": """
        ^his:hero:pet =heta name:pet .
        ^he:hero =ha a:pet som/pronoun =heta name:pet .
        ^name:pet =vara his:hero:pet , och ^he:pet =följa him:hero överallt .
        ^name:hero =gå ingenstans utan own:hero:pet , som/pronoun =heta name:pet .
    """,
    "STATE_food": """
        ^name:hero =tycka bäst om/preposition a:food .
        på [ morgonen ] =äta ^he:hero alltid a:food .
        ^name:hero =tycka att/conjunction ingenting =vara så gott som/conjunction a:food .
        ^he:hero =gilla a:food mer än [ all annan mat ] .
    """,
    "STATE_work": """
        ^his:hero:parent =vara bare:work .
        ^his:hero:parent =arbeta som/conjunction bare:work .
        ^his:hero:parent , som/pronoun =vara bare:work , =ha alltid mycket att/particle :göra .
    """,
    "SCENE": """
        AGREEMENT
        AGREEMENT
        AGREEMENT
        AGREEMENT
        AGREEMENT
        AGREEMENT
        AGREEMENT
        ^name:hero =titta på the:%animal vid the:%landmark .
        ^the:%helper =vattna the:%plants .
        ^the*:%animal =%animal_does .
        ^the*:%helper =%person_does .
        ^the:%helper =drömma om/preposition [ en/determiner ( lång | ) ( resa/noun | vila/noun | promenad ) ] .
        från the:place =kunna ^he:hero :se a:%landmark och a:%landmark .
        ^the:%helper =fiska , och ^name:hero =plocka [ bär/noun ] .
        ^the:%helper ( =borsta | =kamma | =klappa ) the:%animal .
        ^the:%helper =bära a:%tool och a:%tool .
        « vi =kunna ( :vila | :gunga | :resa | :kratta | :fråga the:%helper.s ) , » =säga ^name:hero .
        från the:place =kunna ^he:hero :se [ ( två får/noun | två dammar/noun | tre fiskar/noun | tre bär/noun | två renar ) ] .
        ^the:%helper =damma , och ^name:hero =fiska .
        ^the:%helper =spika , och ^name:hero =bära [ ( borstar/noun | sågar/noun | spikar/noun | kammar/noun ) ] .
    """,
    "AGREEMENT": """
        ^the*:%animal =vara ~%animal_feels .
        ^the*:%animal =vara ~%animal_feels och =%animal_does .
        ^the*:%landmark =vara ~%landmark_seems .
        ^the*:%helper =vara ~%person_feels .
        idag =vara ^the*:%animal ~%animal_feels .
        nu =vara ^the*:%helper ~%person_feels .
        ^name:hero =se att/conjunction ^the*:%animal =vara ~%animal_feels .
        ^name:hero =veta att/conjunction ^the*:%landmark =vara ~%landmark_seems .
        ^the*:%thing =vara ~%thing_seems .
        i [ solen ] =bli ^the*:%thing ~%thing_seems .
    """,
    "LOW": """
        ^name:hero =bli ~%low .
        ^he:hero =sätta sig ner och =gråta .
        nu =vara ^name:hero ~%low , och ^he:hero =behöva [ hjälp/noun ] .
        ^he:hero =känna sig ~%low .
    """,
    "HIGH": """
        ^name:hero =bli ~%high .
        nu =vara ^he:hero ~%high igen .
        ^he:hero =le och =känna sig ~%high .
        med [ ett/determiner ( stort | glatt ) leende ] =hoppa ^he:hero upp och ner .
    """,
    "MEET": """
        då =komma ^a+:helper .
        på [ vägen ] =möta ^he:hero a+:helper .
        ^a+:helper =höra him:hero och =stanna .
        inte långt/adverb bort =stå ^a+:helper .
    """,
    "ASK": """
        « vad =vara det/pronoun ? » =fråga ^the:helper .
        « varför =vara du så ( ledsen | tyst ) ? » =fråga ^the:helper .
        « =kunna du :hjälpa mig ? » =fråga ^name:hero .
        « snälla/interjection , hjälp/verb mig ! » =ropa ^name:hero .
        « jag =ha [ en/determiner fråga/noun ] , » =säga ^name:hero .
        « får/verb jag :fråga dig om/preposition [ något/pronoun ] ? » =säga ^name:hero .
    """,
    "LOST": """
        ^he:hero =vilja :leka med own:hero:thing , men ^the:thing =vara borta !
        ( då | plötsligt ) =komma [ ^vinden ] och =ta the:thing .
        på [ vägen ] =tappa ^he:hero the:thing , och nu =kunna ^he:hero inte :hitta him:thing .
        när ^name:hero =vakna , =vara ^the:thing inte där .
    """,
    "SEARCH": """
        ^he:hero =leta bakom the:%landmark och vid the:%landmark , men ^the:thing =vara inte där .
        ^he:hero =leta överallt , men ^he:hero =hitta bara a:%tool .
        först/adverb =leta ^he:hero vid the:%landmark , sedan vid the:%landmark .
        efter [ en/determiner lång promenad ] =vara ^he:hero ~trött , men ^the:thing =vara inte där .
    """,
    "TELL": """
        « ^the:thing =ligga as:spot the:spot , » =säga ^the:helper .
        « =titta as:spot the:spot , » =svara ^the:helper .
        « jag =se [ något/pronoun ] as:spot the:spot , » =säga ^the:helper .
        « ^a:%animal.s =ha him:thing as:spot the:spot , » =viska ^the:helper .
    """,
    "FOUND": """
        ^name:hero =springa till the:spot , och där =vara ^the:thing !
        ^he:hero =titta as:spot the:spot och =hitta own:hero:thing .
        ^he:hero =skynda sig till the:spot . ^the:thing =vara ( ~våt | ~smutsig | ~kall ) men ~hel .
    """,
    "BREAK": """
        ^name:hero =leka med own:hero:thing . plötsligt =falla ^he:thing och =gå sönder .
        ^he:hero =springa för/adverb fort och =falla . nu =vara ^the:thing ~trasig .
        ^a:%animal.s =hoppa på the:thing , och ^he:thing =gå sönder .
        men när ^he:hero =lyfta the:thing , =se ^he:hero att/conjunction ^he:thing =vara ~trasig .
    """,
    "MEND": """
        « jag =ha a:tool , » =säga ^the:helper . ^he:hero =hålla i the:thing , och ^the:helper =laga him:thing .
        ^the:helper =ta a:tool och [ lite ( lim | färg | trä ) ] . snart =vara ^the:thing ~hel igen .
        « det/pronoun =vara [ ett/determiner lätt arbete ] , » =säga ^the:helper , och med a:tool =laga ^he:helper the:thing .
        ^the:helper =visa name:hero hur man =laga the:thing med a:tool .
        ^the:helper =såga och =spika . snart =vara ^the:thing ~hel igen .
    """,
    "NEED": """
        vid the:%landmark =möta ^name:hero a+:animal .
        bakom the:%landmark =ligga ^a+:animal och =vänta .
        ^name:hero =höra [ ett/determiner ( litet | tyst ) rop ] . bakom the:%landmark =sitta ^a+:animal .
        vid the:%landmark =sitta ^a+:animal och =titta på name:hero .
    """,
    "HUNGRY": """
        ^the:animal =vara ~hungrig . « =ha du [ någon mat ] ? » =fråga ^he:animal .
        ^the:animal =vara ~%low , för/conjunction ^he:animal =ha ingenting att/particle :äta .
        « jag =vara så hungrig att/conjunction jag inte =kunna :sova , » =viska ^the:animal .
        « [ alla/determiner andra ] =ha [ mat ] , » =säga ^the:animal och =gråta .
    """,
    "GIVE": """
        ^name:hero =ha a:food i own:hero:bag . ^he:hero =ge him:food till the:animal .
        ^he:hero =ge the:animal a:food och [ lite ( vatten | mjölk ) ] .
        « du får/verb a:food , » =säga ^name:hero .
        ur own:hero:bag =ta ^name:hero a:food och [ lite vatten ] till the:animal .
    """,
    "THANK": """
        ^the:animal =äta upp allt och =bli ~%high .
        « tack , » =säga ^the:animal . « nu =vara vi [ vänner ] . ».
        ^the:animal =dansa [ en/determiner liten dans ] , för/conjunction nu =vara ^he:animal ~%high .
        från [ den/determiner dagen ] =följa ^the:animal name:hero överallt .
    """,
    "STORM": """
        plötsligt =bli [ ^himlen ] ~mörk , och [ en/determiner ( stor | ) ^storm ] =börja .
        då =komma [ ( ^regnet | ^snön ) ] , och snart =vara ^name:hero ( ~våt | ~kall ) .
        på [ kvällen ] =komma [ en/determiner ( kall | stor ) ^vind ] , och [ ^vägen ] =bli ~mörk .
    """,
    "SHELTER": """
        inte långt/adverb bort =se ^he:hero [ ett/determiner ljus/noun ] . det/pronoun =vara a:shelter .
        ^he:hero =springa till a:shelter och =ropa på [ hjälp/noun ] .
        bakom the:%landmark =hitta ^he:hero a:shelter med [ ett/determiner ljus/noun ] i [ fönstret ] .
    """,
    "WARM": """
        ^the:helper =öppna [ dörren ] . « kom in , » =säga ^he:helper och =ge him:hero [ varm soppa ] .
        där inne =tända ^a+:helper [ en/determiner lampa ] och =koka [ lite soppa ] till name:hero .
        « kom in och vila/verb , » =säga ^a+:helper . på [ spisen ] =stå [ ( varm | god ) ( soppa | mjölk ) ] .
    """,
    "AFTER": """
        på [ morgonen ] =vara [ ^stormen ] borta , och [ ^himlen ] =vara ~ljus .
        efter [ en/determiner ( lång | god ) natt ] =vakna ^name:hero , och [ ^solen ] =skina .
        snart =vara [ ^vinden ] ~lugn , och ^name:hero =kunna :gå hem .
    """,
    "GIFT": """
        imorgon =ha ^his:hero:parent [ födelsedag ] . ^name:hero =vilja MAKE .
        ^name:hero =vilja MAKE till own:hero:parent .
    """,
    "MAKE": "( :måla [ en/determiner bild ] | :baka [ en/determiner tårta ] | :bygga [ en/determiner låda ] | :sy [ "
    "en/determiner väska ] | "
    ":koka [ en/determiner soppa ] | :rita [ en/determiner flagga/noun ] | :plantera [ en/determiner ros ] )",
    "LACK": """
        men ^he:hero =ha no:tool och =veta inte hur man =börja .
        men det/pronoun =vara [ ett/determiner svårt arbete ] , och ^he:hero =kunna inte :göra det/pronoun ensam/adverb .
        ^he:hero =försöka , och sedan igen , men det/pronoun =bli inte bra .
        först/adverb =behöva ^he:hero a:tool .
    """,
    "HELP": """
        ^name:friend =komma med a:tool och =hjälpa him:hero .
        « jag =kunna :hjälpa dig , » =säga ^name:friend . ^he:friend =ha a:tool i own:friend:bag .
        ^name:friend =höra det/pronoun och =hämta a:tool .
    """,
    "JOY": """
        ^his:hero:parent =bli ~%high och =ge him:hero [ en/determiner ( stor | varm ) kram ] .
        ^he:parent =ge him:hero [ två/determiner ( kramar/noun | klappar/noun ) ] .
        « =vara det/pronoun till mig ? » =fråga ^his:hero:parent och =skratta .
        ^his:hero:parent =le . « tack , [ båda två ] , » =säga ^he:parent .
    """,
    "BOTH": """
        ^name:friend =vilja också :leka med the:thing .
        då =komma ^name:friend och =ta the:thing .
        « ge/verb mig the:thing ! » =ropa ^name:friend .
        ^name:friend =ha ingenting att/particle :leka med och =titta på the:thing .
    """,
    "QUARREL": """
        « nej , ^the:thing =vara min/pronoun ! » =ropa ^name:hero .
        ^de/pronoun =ropa , och ^de/pronoun =dra i the:thing .
        ^name:hero =hålla hårt i the:thing och =knuffa name:friend . nu =vara ^de/pronoun ~arg .
    """,
    "SHARE": """
        « ni =kunna :dela , » =säga ^the:helper . först/adverb =leka ^name:friend med the:thing , sedan ^name:hero .
        ^the:helper =skratta . « [ två vänner ] =leka bättre än [ en/pronoun ] , » =säga ^he:helper . nu =dela ^de/pronoun the:thing .
        « förlåt mig , » =säga ^name:friend . « förlåt mig , » =svara ^name:hero . ^de/pronoun =leka tillsammans .
    """,
    "RUN": """
        plötsligt =se ^name:pet a:%animal.s och =springa bort .
        ^the:pet =höra [ ett/determiner rop ] och =springa bort bakom the:%landmark .
        när ^name:hero =titta upp , =vara ^name:pet borta .
    """,
    "CALL": """
        « name:pet ! name:pet ! » =ropa ^he:hero , men ^the:pet =komma inte .
        ^he:hero =ropa och =leta bakom the:%landmark , men ^name:pet =vara inte där .
    """,
    "TELL_pet": """
        « ^the:pet =sitta as:spot the:spot , » =säga ^the:helper .
        « jag =höra [ något/pronoun ] as:spot the:spot , » =svara ^the:helper .
        « titta/verb as:spot the:spot , » =viska ^a:%animal.s .
    """,
    "FOUND_pet": """
        ^name:hero =springa till the:spot , och där =sitta ^name:pet .
        ^he:hero =titta as:spot the:spot . där =sova ^name:pet !
        vid the:spot =leka ^name:pet med a:%animal.s .
    """,
    "WISH": """
        ^name:hero =vilja :@act , men ^he:hero =kunna inte .
        ^the:%animal.p =@act , och ^name:hero =vilja också :@act .
        [ varje natt ] =drömma ^name:hero om/preposition att/particle :@act .
        « jag =vilja :@act , » =säga ^name:hero .
    """,
    "TRY": """
        ^he:hero =försöka , men det/pronoun =vara för/adverb svårt .
        ^he:hero =försöka igen och igen , men [ något/pronoun ] =gå alltid fel .
        [ det/determiner första försöket ] =gå inte bra , och ^name:friend =skratta .
    """,
    "TEACH": """
        « jag =kunna :visa dig , » =säga ^the:helper . ^he:helper =@act långsamt , och ^name:hero =titta på .
        ^the:helper =hjälpa him:hero [ varje dag ] . « titta/verb på mig och gör/verb som/conjunction jag , » =säga ^he:helper .
        « inte så fort , » =säga ^the:helper . « först/adverb =vila vi , sedan =@act vi . ».
    """,
    "CAN": """
        nu =kunna ^name:hero :@act !
        till [ slut ] =@act ^name:hero , och ^name:friend =titta på .
        sedan =@act ^he:hero lika bra som/conjunction the:helper .
        på [ kvällen ] =@act ^de/pronoun tillsammans .
    """,
    "RECALL_colour": """
        « [ vilken färg ] =ha your:thing ? » =fråga ^name:friend . « ^he:thing =vara ~@thing , » =säga ^name:hero .
        ^name:hero =hålla hårt i own+:hero:thing .
        ^name:friend =gilla också the+:thing .
        i [ solen ] =bli ^the+:thing ~%thing_seems .
        hemma =måla ^name:hero [ en/determiner bild ] av the+:thing .
        « det/pronoun =vara [ en/determiner ( fin | vacker ) färg ] , » =säga ^name:friend , för/conjunction ^the:thing =vara ~@thing .
    """,
    "RECALL_name": """
        « kom , name:pet ! » =ropa ^name:hero .
        ^name:pet =hoppa upp och =vilja :ha [ en/determiner kram ] .
        « vad =heta your:pet ? » =fråga ^the:%helper.s . « name:pet , » =säga ^name:hero .
        ^name:hero =ge name:pet [ lite ( vatten | mjölk ) ] .
        ^name:hero ( =klappa | =krama ) name:pet och =kamma him:pet .
    """,
    "RECALL_food": """
        hemma =stå a:food på [ bordet ] , för/conjunction ^name:hero =tycka bäst om/preposition him:food .
        « vad =vilja du :äta ? » =fråga ^his:hero:parent . « a:food , » =säga ^name:hero .
        ^his:hero:parent =köpa a:food till him:hero .
        ^name:friend =komma med a:food , och ^name:hero =äta upp him:food .
    """,
    "RECALL_work": """
        sedan =komma ^his:hero:parent hem . ^the:work =vara ~trött efter [ arbetet ] .
        « vad =göra your:parent ? » =fråga ^name:friend . « ^he:parent =vara bare:work , » =säga ^name:hero .
        ^his:hero:parent =berätta för/preposition name:friend hur a:work =arbeta .
    """,
    "END": """
        ^de/pronoun =gå hem tillsammans .
        på [ natten ] =sova ^name:hero gott .
        på [ natten ] =ha ^name:hero [ en/determiner god dröm ] .
        det/pronoun =vara [ en/determiner god dag ] .
        [ ^månen ] =lysa över the:place , och alla/pronoun =sova .
        ^de/pronoun =vara [ vänner ] för/preposition alltid .
        sedan =ta ^name:hero [ en/determiner ( promenad | vila/noun ) ] med name:friend .
        på [ kvällen ] =sjunga ^de/pronoun [ en/determiner visa/noun ] om/preposition the:place .
    """,
}


def phrase(form: str, thing: Thing, with_adjective: bool, owner: Thing | None) -> list[Piece]:
    """en röd drake, draken, den röda draken, hennes röda drake, röda drakar; `bare` is without article."""
    noun, gender, i = thing.noun, 2 if thing.plural else int(thing.noun.neuter), 2 * thing.plural
    adjective = thing.adjective if with_adjective else None
    definite = form == "the"
    i += definite
    j = 3 if form not in ("a", "no", "bare") and not thing.plural else gender
    pieces = [Piece(noun.forms[i], "noun", noun.lemma, noun.meaning, thing.number, "noun", lambda other: other.forms[i])]
    if adjective:
        pieces.insert(
            0, Piece(adjective.forms[j], "adjective", adjective.lemma, adjective.meaning, "", "adjective", lambda other: other.forms[j])
        )
    if form == "a":
        article = ("en", "ett", "")[gender]
    elif definite:
        article = ("den", "det", "de")[gender] if adjective else ""
    elif form == "his":
        assert owner
        article = "deras" if owner.plural else {"she": "hennes", "he": "hans", "it": "dess"}[owner.gender]
    else:
        article = ARTICLES[form][gender]
    lemma = article if form == "his" else {"own": "sin", "my": "min", "your": "din", "no": "ingen", "the": "den", "a": "en"}.get(form, "")
    return [Piece(article, "determiner", lemma), *pieces] if article else pieces


ARTICLES = {
    "own": ("sin", "sitt", "sina"),
    "my": ("min", "mitt", "mina"),
    "your": ("din", "ditt", "dina"),
    "no": ("ingen", "inget", "inga"),
    "bare": ("", "", ""),
}


def pronoun(form: str, thing: Thing) -> str:
    if thing.plural:
        return {"he": "de", "him": "dem"}[form]
    if thing.gender == "it":
        return "det" if thing.noun.neuter else "den"
    return {"she": {"he": "hon", "him": "henne"}, "he": {"he": "han", "him": "honom"}}[thing.gender][form]


def agreeing(word: Verb | Adjective, plural: bool, neuter: bool) -> tuple[str, str]:
    """trött, trötta. Verbs do not agree."""
    if isinstance(word, Verb):
        return word.forms[1], ""
    singular = word.forms[int(neuter)]
    return (word.forms[2], singular) if plural else (singular, word.forms[2])


def spelled(words: str) -> list[str]:
    """hund -en -ar -arna -> hund, hunden, hundar, hundarna."""
    first, *others = words.split()
    return [first, *(first + word[1:] if word[0] == "-" else word for word in others)]


def lexicon() -> Lexicon:
    nouns = [(forms, meaning) for meaning, words in NOUNS.items() for forms in map(spelled, words.split(","))]
    adjectives = [(forms, meaning) for meaning, words in ADJECTIVES.items() for forms in map(spelled, words.split(","))]
    verbs = [(word.split("/"), meaning) for meaning, words in VERBS.items() for word in words.split()]
    return Lexicon(
        nouns={forms[0]: Noun(forms[0], meaning, tuple(forms), forms[1][-1] == "t") for forms, meaning in nouns},
        adjectives={forms[0]: Adjective(forms[0], meaning, (*forms, forms[2])[:4]) for forms, meaning in adjectives},
        verbs={forms[0]: Verb(forms[0], meaning, (*forms, forms[0] + "r")[: max(2, len(forms))]) for forms, meaning in verbs},
        closed=CLOSED,
        names=NAMES,
        groups=GROUPS,
        topics=TOPICS,
        rules=RULES,
        prepositions=("nära", "vid", "bakom", "bredvid"),
        phrase=phrase,
        pronoun=pronoun,
        agreeing=agreeing,
    )
