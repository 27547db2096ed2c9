"""Data: sources of rows, how they are cut into clients, and tasks made of both.

Every source returns a `fedlib.core.pool.Pool`: plain tensors, no loader object. Where
the files of a real data set live is the argument `root`; without it the environment
variable FEDLIB_DATA, without that the folder `data` of the current directory.

tasks          a task from a plain description: source, partition, network
partition      who holds what: rows of a source as clients
settings       what they may be given, declared beside their arguments
files          downloads, checksums and archives, without trust
get            which data sets there are, and how they are fetched

synthetic      Synthetic(alpha, beta): a linear teacher for every client
digits         handwritten digits of installed packages: as they are, as sites, as
               pairs, as domains
images         photographs and digits from files; features: seen by a frozen tower
people         the American Community Survey, and Adult, which comes with the package
census         people drawn from equations
glyphs         drawn characters; domains: in the domains of PACS and others
"""
