"""The names and things that generated conversations speak of."""

FIRST = """Anna Ben Clara David Emma Felix Greta Hugo Ida Jonas Karla Leo Mara Nils Olga Paul Rosa Sam Tina Uwe
Vera Willi Yara Zoe Alan Bella Carl Dora Erik Fiona Gus Helen Ivan Julia Kurt Lena Max Nora Oskar Petra
Quinn Rita Simon Tara Umar Viola Walter Xenia Yuri Amir Bianca Cyrus Diana Elias Frida Georg Hanna Igor Jana Lars""".split()
LAST = """Keller Brandt Moser Vogel Hansen Lopez Novak Rossi Dubois Smith Jones Clark Baker Miller Cooper Fisher Turner
Walker Wright Young Green Hill Stone Wood Lake Frost Snow Berg Lund Holm Dahl Koch Bauer Weber Maier Huber
Gruber Steiner Egger Lang Kurz Klein Gross Braun Roth Weiss Schwarz Silva Costa Santos Pereira Moreau Laurent
Bernard Petit Durand Fontana Conti Greco Ricci""".split()
CITIES = """Oslo Rome Paris Berlin Vienna Zurich Madrid Lisbon London Dublin Prague Warsaw Athens Cairo Tokyo Kyoto Delhi
Lima Quito Boston Chicago Denver Dallas Miami Seattle Austin Toronto Sydney Perth Bergen Turin Milan Naples
Lyon Nice Geneva Basel Bern Hamburg Munich Cologne Dresden Leipzig Graz Linz Porto Seville Malaga Gdansk
Riga Tallinn Helsinki Stockholm Malmo Aarhus Ghent Bruges Utrecht Delft Cork""".split()
ITEMS = """apples pears books pens lamps chairs tables cups plates bottles candles stamps hats shoes shirts bikes boxes
bricks tiles ropes nails screws brushes towels clocks radios phones cables plants seeds eggs lemons melons
onions carrots cakes cookies pizzas sandwiches tickets""".split()
JOBS = """baker nurse teacher farmer pilot painter carpenter doctor engineer gardener lawyer librarian plumber singer
writer cook driver tailor chemist welder""".split()
COLORS = "red blue green yellow black white brown grey orange purple pink".split()
ROOMS = ["kitchen", "bedroom", "office", "garage", "hall", "cellar", "bathroom", "garden", "attic", "library"]
EVENTS = ["the chess evening", "the book fair", "the spring concert", "the staff meeting", "the wine tasting",
          "the science talk", "the summer party", "the film night", "the flea market", "the city run",
          "the cooking class", "the poetry slam", "the garden tour", "the board meeting"]
SONGS = ["Blue River", "Night Train", "Paper Moon", "Silver Lake", "Golden Hour", "Winter Song", "Open Road",
         "Quiet Storm", "First Light", "Old Bridge", "Red Balloon", "Slow Dance", "Empty Street", "Morning Star"]
TOPICS = ["water turbines", "old bridges", "chess openings", "bread recipes", "solar panels", "bird migration",
          "river maps", "jazz history", "wooden boats", "garden tools", "train tickets", "steam engines",
          "clock repair", "bee keeping", "stone walls", "paper planes", "coffee beans", "mountain huts",
          "sea shells", "city parks", "folk songs", "glass art", "night skies", "rain gauges"]
NOTES = ["buy milk", "call the bank", "water the plants", "send the parcel", "fix the door", "feed the cat",
         "book the flight", "pay the rent", "clean the oven", "pick up the keys", "print the report",
         "return the books", "charge the bike", "order new lamps", "check the oil", "wash the car"]
LANGUAGES = ["German", "French", "Spanish", "Italian", "Polish", "Dutch", "Greek", "Swedish", "Danish", "Czech"]
SYMBOLS = ["ACME", "NOVA", "ORCA", "TREX", "LUMA", "KITE", "ZEST", "OPAL", "RUNE", "FLUX", "IRIS", "ECHO"]
CURRENCIES = ["EUR", "USD", "GBP", "CHF", "JPY", "SEK", "NOK", "PLN"]
WEEKDAYS = ["Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday"]
WEATHER = ["sunny", "rainy", "cloudy", "windy", "foggy", "snowy", "stormy", "clear"]
ONSETS = "b d f g h j k l m n p r s t v w z br dr gr kl pl st tr sh".split()
VOWELS = "a e i o u ai ea ou".split()
CODAS = ["", "n", "r", "l", "s", "k", "m", "nd", "rt"]

# Outside what the model knows: it should say so.
UNKNOWN_SUBJECTS = ["the capital of Peru", "the tallest mountain", "the president of France", "the price of gold",
                    "the speed of light", "the age of the universe", "the longest river", "the recipe for goulash",
                    "the winner of the last election", "the meaning of life", "the plot of Hamlet",
                    "the population of China", "the boiling point of lead", "the inventor of the zipper",
                    "the history of Venice", "the rules of cricket", "the colour of Mars", "the distance to the moon",
                    "the author of Faust", "the best restaurant in town", "the number of stars",
                    "the name of my dog", "the square root of pi", "the national dish of Poland",
                    "quantum mechanics", "photosynthesis", "the French Revolution", "black holes", "dinosaurs",
                    "the stock market", "football", "opera", "volcanoes", "medieval castles", "cheese", "whales",
                    "the weather on Sunday", "the lottery numbers", "Beethoven", "Picasso", "ancient Egypt",
                    "tax law", "baking soda", "poker", "astrology", "yoga", "kangaroos", "the Titanic",
                    "the moon landing", "Esperanto", "sushi", "rugby", "the Alps", "penguins", "gravity"]


def made_up_word(rng):
    word = ""
    for _ in range(rng.choice((2, 2, 3))):
        word += rng.choice(ONSETS) + rng.choice(VOWELS)
    return (word + rng.choice(CODAS)).capitalize()


def is_made_up(rng):
    """More often in training: what copies any word should learn it there."""
    return rng.random() < getattr(rng, "made_up_share", 0.06)


def first_name(rng):
    return made_up_word(rng) if is_made_up(rng) else rng.choice(FIRST)


def last_name(rng):
    return made_up_word(rng) if is_made_up(rng) else rng.choice(LAST)


def city(rng):
    return made_up_word(rng) if is_made_up(rng) else rng.choice(CITIES)
