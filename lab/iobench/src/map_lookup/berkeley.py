# A Btree of Berkeley DB with a cache that holds all of it, as bench_001 of sendmail X has it.
# Arguments: the file, and the number of pairs. Reads so many lines KEY VALUE, then the keys to look up, a line each, and an empty
# line; then looks all keys up for each further line. Answers each line from the empty one on with `ok`.
import collections
import sys
from bsddb3 import db

path, pairs = sys.argv[1:]
store = db.DB()
store.set_cachesize(0, 64 << 20)
store.open(path, dbtype=db.DB_BTREE, flags=db.DB_CREATE)
print("ok", db.version(), flush=True)
lines = sys.stdin.buffer
for _ in range(int(pairs)):
    store.put(*lines.readline().split())
keys = []
while (key := lines.readline().strip()):
    keys.append(key)
print("ok", flush=True)
for _ in lines:
    # Without a loop in Python: a key that is not there raises an error.
    collections.deque(map(store.__getitem__, keys), maxlen=0)
    print("ok", len(keys), flush=True)
