"""The measurements of `moldau bench`.

The measuring code is part of the package, so that the installed command works anywhere; `bench/`
at the root of the repository has what is for those who work on Moldau: further measurements, the
runner that writes `RESULTS.md` there, and the results.

Three kinds of process take part, and each has its own folder or module:

- the broker under test, exactly as users start it (`broker.py`);
- one load process per sample (`load/`), which drives librdkafka or a bare socket, does nothing in
  Python per message, and reads the broker's CPU clock at both ends of the timed window;
- the bench itself (`measure/`, `suite.py`), which starts the others, repeats, and takes medians.

Ratios are taken between figures of one run, never against a number written down earlier. What
librdkafka itself can do is measured in the same run against a broker that does nothing
(`null_broker.py`), so that a row limited by the client can be told from one limited by the broker.
"""
