"""Data: sources of rows, how they are cut into clients, and tasks made of both.

Every source returns a `fedlib.core.pool.Pool`: plain tensors, no loader object. Where
the files of a real data set live is the argument `root`; without it the environment
variable FEDLIB_DATA, without that the folder `data` of the current directory.

tasks          a task from a plain description: source, partition, network
partition      who holds what: rows of a source as clients
settings       what they may be given, declared beside their arguments
files          downloads, checksums, archives, pickles and pictures, without trust
get            which data sets there are, and how they are fetched

synthetic      Synthetic(alpha, beta): a linear teacher for every client
digits         scikit-learn's handwritten digits
mnist5k        5,000 images of MNIST: as they are, as sites, as pairs
mnist_domains  the same images as domains: turned, or coloured
mnist, cifar, tiny_imagenet        images of one domain
office10, domainbed                images of several domains
glyphs         drawn characters, no download; domains: in the domains of domainbed
acs            the American Community Survey; census: a procedural one
adult          people of the census of 1994, which come with the package
features       another source, seen by a frozen image tower; standin: a small CLIP
"""
