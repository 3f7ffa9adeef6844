"""`moldau produce --follow`: lines of growing and rotating files, each sent exactly once.

Where it stands is written to a state file now and then, after delivery. What was delivered since
then is found in the topic itself: every record carries, in the header `moldau.position`, which
bytes of which file it is. After a crash the records behind the last saved place are read back, and
lines that are there already are not sent again. So a state file that is late costs time, no lines.

    marks.py      a place in a file, and how the file is known again under another name
    siblings.py   which files of a folder are rotated forms of which
    source.py     one file's content: whole lines from where we stand
    state.py      the state file
    followed.py   one path: the file that it leads to, and those that it led to before
    read_back.py  what a collector that died has delivered
    collector.py  the loop: read, send, wait, save
"""
