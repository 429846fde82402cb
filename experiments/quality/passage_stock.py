"""The sentences that long-context passages are built from: fillers by theme, and the facts planted among them.

No filler contains an answer or a key of a needle.
"""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["FILLERS", "NEEDLES", "Needle"]


@dataclass(frozen=True)
class Needle:
    """A kind of planted fact: `statement` tells the answer of a key, `question` asks for it at the passage's end."""

    statement: str
    question: str
    keys: tuple[str, ...]
    answers: tuple[str, ...]


def _needle(statement: str, question: str, keys: str, answers: str) -> Needle:
    return Needle(statement, question, tuple(keys.split(", ")), tuple(answers.split(", ")))


NEEDLES = (
    _needle(
        "The secret word of the {key} is {answer}.",
        "As told above, the secret word of the {key} is",
        "gardeners, night watch, chess club, ferry crew",
        "marble, walnut, candle, falcon, ribbon, copper",
    ),
    _needle(
        "{key} keeps the spare key under the {answer}.",
        "As told above, {key} keeps the spare key under the",
        "Mrs. Alder, Mr. Brandt, Dr. Okoye, Miss Teller",
        "flowerpot, doormat, birdbath, staircase, bucket, statue",
    ),
    _needle(
        "The number painted on {key}'s boat is {answer}.",
        "As told above, the number painted on {key}'s boat is",
        "Henrik, Amara, Stellan, Noor",
        "417, 582, 693, 248, 936, 751",
    ),
    _needle(
        "The parcel for {key} was sent to the town of {answer}.",
        "As told above, the parcel for {key} was sent to the town of",
        "Oskar, Leonie, Farid, Bettina",
        "Harrowmere, Stonebridge, Millford, Oakhaven, Redcliff, Thornbury",
    ),
    _needle(
        "{key}'s favorite instrument is the {answer}.",
        "As told above, {key}'s favorite instrument is the",
        "Clara, Dmitri, Paloma, Jasper",
        "cello, trumpet, harp, flute, accordion, drum",
    ),
    _needle(
        "The door of the {key} was painted {answer}.",
        "As told above, the door of the {key} was painted",
        "pottery, stable, chapel, smithy",
        "turquoise, crimson, orange, violet, silver, black",
    ),
    _needle(
        "{key} trained for years to become a {answer}.",
        "As told above, {key} trained for years to become a",
        "Elias, Miriam, Tomasz, Greta",
        "surgeon, glassblower, carpenter, lawyer, dentist, tailor",
    ),
    _needle(
        "The train to {key} leaves from platform {answer}.",
        "As told above, the train to {key} leaves from platform",
        "Eastvale, Northam, Lowfield, Brackwater",
        "four, five, ten, eleven, twelve, thirteen",
    ),
    _needle(
        "{key}'s dog is called {answer}.",
        "As told above, {key}'s dog is called",
        "Rosalind, Viktor, Imani, Gustav",
        "Biscuit, Thunder, Pepper, Domino, Rocket, Shadow",
    ),
    _needle(
        "The treasure of the {key} was hidden inside a hollow {answer}.",
        "As told above, the treasure of the {key} was hidden inside a hollow",
        "smugglers, monks, miners, pirates",
        "oak, pillar, bell, statue, chimney, log",
    ),
    _needle(
        "The yearly feast of {key} is held in {answer}.",
        "As told above, the yearly feast of {key} is held in",
        "Sandholm, Veldrup, Castelmar, Nordwick",
        "February, August, October, March, June, November",
    ),
    _needle(
        "{key} ordered a bowl of {answer} for lunch.",
        "As told above, for lunch {key} ordered a bowl of",
        "Signe, Mateo, Harriet, Kwame",
        "rice, noodles, porridge, lentils, spinach, chili",
    ),
    _needle(
        "The meeting of the {key} committee will be held on {answer}.",
        "As told above, the meeting of the {key} committee will be held on",
        "harvest, lighthouse, museum, orchard",
        "Monday, Tuesday, Wednesday, Thursday, Friday, Saturday",
    ),
    _needle(
        "Old {key} once worked in a factory that made {answer}.",
        "As told above, old {key} once worked in a factory that made",
        "Anselm, Bruna, Casimir, Dorothea",
        "buttons, matches, mirrors, umbrellas, pianos, bicycles",
    ),
    _needle(
        "The code of the {key} safe is {answer}.",
        "As told above, the code of the {key} safe is",
        "bakery, hotel, theater, harbor",
        "8264, 3719, 5082, 9431, 2657, 7148",
    ),
    _needle(
        "{key}'s grandmother came from {answer}.",
        "As told above, {key}'s grandmother came from",
        "Jonas, Priya, Luca, Maren",
        "Portugal, Norway, Egypt, Peru, Ireland, Vietnam",
    ),
)

FILLERS: tuple[tuple[str, ...], ...] = (
    (
        "The rain had stopped before dawn, and the roofs of the village were still shining.",
        "A thin mist hung over the meadows and made the fences look shorter than they were.",
        "Somebody had left a cart in the middle of the lane, so the milk van had to wait.",
        "By eight the clouds had broken up, and patches of sunlight moved slowly across the fields.",
        "The puddles in the square were full of sky, and children jumped from one to the next.",
        "An old man on the bench said that the weather would hold until the evening.",
        "Nobody quite believed him, but it was pleasant to hear.",
        "In the afternoon the wind turned, and the washing on the lines began to dance.",
    ),
    (
        "Most of the work in the workshop was done by hand and took a long time.",
        "The wood was dried for two winters before anybody was allowed to cut it.",
        "A good plane, the master used to say, is worth more than a strong arm.",
        "The apprentices swept the floor at noon and again when the lamps were lit.",
        "Shavings were kept in sacks and used to start the stove in the morning.",
        "Customers came in with drawings on the backs of envelopes and left with a price.",
        "Few of them complained, since a chair from this shop could outlive its owner.",
        "When a piece was finished, it stood in the window for a day before it was delivered.",
    ),
    (
        "The library occupied three rooms above the post office and smelled of dust and glue.",
        "Its catalogue was a chest of small drawers filled with handwritten cards.",
        "Readers were asked to speak quietly and to keep their coffee on the landing.",
        "On wet days every seat was taken, and people read standing between the shelves.",
        "A large atlas lay open on a table near the window, always at a different page.",
        "The librarian remembered what everyone had borrowed, sometimes years afterwards.",
        "She believed that a book returned late was a book that had been enjoyed.",
        "Fines were dropped into a jar, and once a year the jar paid for new lamps.",
    ),
    (
        "A river that looks calm from the bank can be surprisingly fast in the middle.",
        "Stones on the outside of a bend are carried away, while sand settles on the inside.",
        "Over the centuries the bends grow wider, until the water cuts a shorter path.",
        "What is left behind becomes a curved pond full of reeds and frogs.",
        "Herons stand there for hours without moving, as if someone had planted them.",
        "In spring the melting snow raises the level by more than the height of a person.",
        "The people who live nearby have learned to build their cellars on higher ground.",
        "They know each flood by its year and mark it with a line on the mill.",
    ),
    (
        "Learning to cook begins with learning to wait.",
        "Onions need a low flame and more time than most recipes admit.",
        "Salt should be added in small amounts, and the pot should be tasted after each.",
        "A sharp knife is safer than a dull one, because it goes where it is pointed.",
        "Dough that refuses to rise is usually just cold and wants a warmer corner.",
        "Many sauces can be rescued with a spoonful of water and some patient stirring.",
        "The last step is to turn off the stove and let the dish rest for a while.",
        "Guests who offer to wash up should never be refused.",
    ),
    (
        "The night bus was almost empty when it reached the edge of the city.",
        "Two students were asleep against the window, their bags piled up between them.",
        "The driver hummed a tune that nobody knew and tapped the wheel at red lights.",
        "Outside, the streets grew darker, and the distance between the houses grew wider.",
        "A woman in a raincoat read the same page of her newspaper again and again.",
        "At the last stop she folded it carefully and left it on the seat.",
        "The driver found it there when he checked the rows, as he did every night.",
        "He finished the crossword over a sandwich before driving back.",
    ),
    (
        "Bees tell each other where flowers are by dancing on the comb.",
        "The angle of the dance shows the direction, and its length shows how far to fly.",
        "A beekeeper learns to move slowly, since sudden gestures alarm the colony.",
        "Smoke calms the insects and gives the keeper a few minutes to look inside.",
        "A healthy hive has a steady sound, a little lower than a refrigerator.",
        "When the queen is missing, the sound changes and becomes restless.",
        "In autumn the entrance is made smaller so that mice can't get in.",
        "During the cold months the bees form a ball and take turns at the outside.",
    ),
    (
        "The school stood at the top of a hill, which explained why so many pupils were late.",
        "Each classroom had a stove, a globe and a map with borders that no longer existed.",
        "Lessons began with a song, whether or not anyone felt like singing.",
        "The arithmetic teacher wrote so small that the back row borrowed a telescope.",
        "During the long break, the older pupils organized races down the slope.",
        "One winter they built a fort of snow that lasted for several weeks.",
        "The headmaster pretended not to see it, though it blocked his parking space.",
        "When it finally melted, nine lost gloves and a lunch box came to light.",
    ),
    (
        "Repairing a clock is mostly a matter of cleaning it.",
        "Old oil turns sticky, and then the wheels have to fight for every tick.",
        "The watchmaker lays out the parts in the order in which they were removed.",
        "Tiny screws are kept in a tin lid so that they can't roll off the table.",
        "After a bath and a drop of fresh oil, most movements start by themselves.",
        "Those that do not are examined with a lens, tooth by tooth.",
        "A bent tooth can be straightened once, but rarely a second time.",
        "The finished clock hangs on the wall for a week to prove that it keeps time.",
    ),
    (
        "Travelers who crossed the mountains in those days went on foot or by mule.",
        "The path was narrow, and in places it was nothing but a ledge above the valley.",
        "Small huts offered a roof, some straw and a fire for anyone who came.",
        "Nobody asked for money, but it was the custom to leave some wood behind.",
        "News moved along the route faster than the people who carried goods.",
        "A story told in the first hut was often known in the last one on the same day.",
        "Storms could close the pass for a week, and then stories were all there was.",
        "Some of them are still told, although the road now runs through a tunnel.",
    ),
    (
        "The market opened at six, and by seven the best vegetables were gone.",
        "Traders called out their prices in a singing tone that carried across the street.",
        "A stall near the fountain sold nothing but string, in every thickness and color.",
        "Its owner could tell from a knot what sort of work a customer did.",
        "Next to him, a girl weighed plums on a scale that had belonged to her mother.",
        "She always added one more after the pointer had settled.",
        "Towards noon the square smelled of bread, fish and wet cobblestones.",
        "An hour later it was swept clean, and only the pigeons were still doing business.",
    ),
    (
        "A telescope gathers light, and a larger mirror gathers more of it.",
        "The air above us trembles, which is why the stars seem to twinkle.",
        "Observatories are built on high ground to leave most of that air below.",
        "Observers used to sit in the cold all night with a hand on the controls.",
        "Today the pictures arrive on a screen, and the observer can stay in bed.",
        "Yet many of them still go outside to look up before they start.",
        "A faint smudge may turn out to be a galaxy with billions of suns.",
        "Its light set out long before there was anyone to see it.",
    ),
    (
        "The orchestra rehearsed in a hall that had once been a swimming pool.",
        "The tiles were still there, and they made every note a little brighter.",
        "On the first evening half of the players could not find the entrance.",
        "The conductor waited, sharpened a pencil and said that silence was also music.",
        "They began with the slow movement, since it forgives more mistakes.",
        "After an hour the sound had grown warm, and people stopped looking at their watches.",
        "A cat walked across the stage and sat down among the violas.",
        "Nobody chased it away, and it has attended every rehearsal since.",
    ),
    (
        "Maps are never finished, because the world refuses to stand still.",
        "Coastlines move, new roads appear, and villages give up their names.",
        "The first surveyors measured with chains and wrote their results in notebooks.",
        "A mistake at the start of a day could bend a whole mountain range by evening.",
        "They therefore closed each loop by returning to the place where they began.",
        "If the numbers agreed, they celebrated with soup, and if not, they started again.",
        "Modern instruments do the same work in seconds and need no soup.",
        "Even so, somebody still has to decide what deserves a place on the sheet.",
    ),
)
