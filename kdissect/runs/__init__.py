"""One capture, several processes: START HERE for ``-j N``.

What becomes of a connection depends on its own packets alone (net/connection.py). So one process reads the
captures, and each of N workers dissects the packets of its ``Shard``. Two things cross connections: the order
of the output and the names of topic IDs; the parent handles both, with the same classes that a single process
uses.

    reader                                               workers
    ------                                               -------
    packets      the next ones, in shared memory, with   ->  each takes those of its shard, and those
                 the shard of each, if that is known         whose shard is not known

    worker                                               parent
    ------                                               ------
    WorkerBatch  what the next packets completed: the    ->  assembling.py merges the batches of all workers
                 place of each row, and its output           by place, through Ordering and
                 (usually bytes), or a mark that it is       TopicNameResolver where needed
                 open: it has topic IDs without a name
                                                         <-  ParentUpdate: how far all workers are merged;
                                                             topic names learned; names for open rows whose
                                                             turn has come
    LateRows     the output of these rows                ->  they take their place in the output
    WorkerEnd    all packets are dissected: counts,      ->  they are added up
                 results (a summary)
                                                         <-  Stop: nothing more is needed; also to the reader

If names may come from any part of the capture, and for an export, the captures are read twice: first each
worker sends the ``LearnedFacts`` of its connections, and gets those of all. Then no row is open.

A place counts packets and idle ticks up to the one that completed the row (``Dissection.place``). Workers
also count the packets that they skip, so places agree. A row without unnamed IDs, on a connection without
open rows, needs nothing from the parent. That is nearly every row, so the parent mostly sorts finished lines
by place and writes them.

Large messages go through memory that sender and receivers share, and are announced in a pipe.

Nothing waits forever. The reader waits while a worker has not taken the packets that fill this memory. A
worker sends at most ``AHEAD`` batches beyond the place that all workers have reached, and the slowest one is
never ahead; one that has no packets to dissect sends what it has, since others may wait for it. A thread of
each worker receives what the parent sends, regardless of its main thread; the parent reads from all workers.
A process that dies closes its pipe: the others exit without their parent, and the parent reports which one
died.

    broadcast.py    the reader: captures to packets, and the worker's end of that
    worker.py       the worker: exchanges to text, or to the sums of a summary
    assembling.py   the messages, and the parent: rows of all workers -> their order
    worker_pool.py  processes, pipes and shared memory

cli/jobs.py decides when to use them.
"""
