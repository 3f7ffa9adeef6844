"""The first act of `moldau demo`: orders, cooks who share them, and one who dies."""

from __future__ import annotations

from moldau.cli.demo.group import SESSION_TIMEOUT_S, Members
from moldau.cli.demo.story import Story

# Each of them has a partition of their own.
CUSTOMERS = ("eva", "anna", "carla", "tom", "olga", "jan")
ITEMS = ("coffee", "tea", "cake", "water", "soup", "juice", "bread")
PRODUCE = "produce orders --key-separator ,"


def orders(first: int, last: int) -> str:
    """Lines such as `anna,1 coffee`: the key, and what was ordered."""
    lines = []
    for number in range(first, last):
        item = ITEMS[number % len(ITEMS)]
        lines.append(f"{CUSTOMERS[number % len(CUSTOMERS)]},order {number}: {item}\n")
    return "".join(lines)


def tell_of_orders(story: Story) -> None:
    """Produce, consume, share the work in a group, watch the lag, kill a member."""
    story.tell("A topic with six partitions.")
    story.run("topics create orders --partitions 6")
    story.tell(
        "Twelve orders. The part before the comma is the key, which picks the partition,",
        "so that the orders of one customer stay in order.",
    )
    story.run(PRODUCE, typed=orders(1, 13))
    story.tell("Read some of them back. A message stays in the log after it has been read.")
    story.run(
        "consume orders --from-beginning --max 4"
        " --format 'partition {partition}, offset {offset}: {key}, {value}'"
    )
    with Members(story.address, "kitchen", count=3, partitions=6) as members:
        _share(story, members)
        _take_over(story, members)
    story.tell("The members have left; the group remembers how far it has read.")
    story.run("groups list")
    story.tell("Any Kafka client could have done the same.")


def _share(story: Story, members: Members) -> None:
    story.tell(
        "Three cooks share the work: three processes, one group. Each partition has one reader,",
        "so that every order is cooked once. The first one starts with the earlier orders.",
    )
    members.start()
    members.wait_until_shared()
    members.wait_for(range(1, 13))
    story.tell("Twelve more orders, for all three.")
    story.run(PRODUCE, typed=orders(13, 25), quiet=True)
    members.wait_for(range(13, 25))
    story.tell("Nothing is left to do: the group has no lag.")
    members.wait_for_commits()
    story.run("groups describe kitchen")


def _take_over(story: Story, members: Members) -> None:
    name, partitions = members.next_to_die()
    story.tell(f"Now {name}, who has partitions {partitions}, dies without a word.")
    members.kill_one()
    story.tell("Twelve more orders come in. Those for the dead one have to wait.")
    story.run(PRODUCE, typed=orders(25, 37), quiet=True)
    members.wait_for(range(25, 37), only_of_the_living=True)
    story.tell("This is what lag looks like:")
    members.wait_for_commits()
    story.run("groups describe kitchen")
    story.tell(
        f"After {SESSION_TIMEOUT_S} seconds without a sign of life the group gives its partitions",
        "to the others, who continue exactly where it stopped.",
    )
    members.wait_for(range(25, 37))
    members.wait_until_shared()
    members.wait_for_commits()
    story.run("groups describe kitchen")
