"""All methods by the name they have in tables. To add one: a file, and a line here."""
from .afl import AFL
from .alone import Local
from .calibrated import GaussianUpdate, UniformUpdate
from .cd2pfed import CD2pFed
from .ditto import Ditto
from .equfl import EquFL
from .faa import FAA, FAALagged
from .fairfed import FairFed
from .fedala import FedALA
from .fedas import FedAS
from .fedas_aligned import FedASChained, FedASGlobal, FedASParallel
from .fedavg import FedAvg, Uniform
from .fedbabu import FedBABU
from .fedclip import FedCLIP
from .fedfa import FedFa
from .fedfb import FedFB
from .fedfv import FedFV
from .fedga import FedGA, FedGAAblation
from .fedgini import FedGini
from .fedmgda import FedMGDA
from .fedpac import FedPAC
from .fedper import FedPer, FedPerOnline
from .fedproto import FedProto
from .fedprox import FedProx
from .fedrep import FedRep, FedRep2x
from .fedsam import FedSAM
from .fftgp import FFTGP, FFTGPBeside, FFTGPLagged
from .finetune import FedAvgFT, FedProxFT
from .flinear import FLinear
from .ga import GA
from .grace import GRACE
from .lgfedavg import LGFedAvg
from .own import FedAvgP, FedProxP
from .perfedavg import PerFedAvg
from .pfedhn import PFedHN
from .pfedhn_chunked import PFedHNChunked
from .pfedme import PFedMe
from .plgu_ghn import PLGUGHN
from .plgu_grep import PLGUGRep
from .plgu_lf import PLGULF
from .promptfl import PromptFL
from .qfedavg import QFedAvg
from .regular import Regular
from .reweight import Reweight

METHODS = {
    "FedAvg": FedAvg,
    "Uniform": Uniform,
    "FedProx": FedProx,
    "q-FedAvg": QFedAvg,
    "AFL": AFL,
    "FedFa": FedFa,
    "FedMGDA+": FedMGDA,
    "FedFV": FedFV,
    "FedGini": FedGini,
    "FedGA": FedGA,
    "FedGA_ablation": FedGAAblation,
    "FedPer": FedPer,
    "FedPer-online": FedPerOnline,
    "FedRep": FedRep,
    "Ditto": Ditto,
    "pFedHN": PFedHN,
    "Local": Local,
    "FedAvg-P": FedAvgP,
    "FedProx-P": FedProxP,
    "FedAvg-FT": FedAvgFT,
    "FedProx-FT": FedProxFT,
    "LG-FedAvg": LGFedAvg,
    "FedBABU": FedBABU,
    "FedProto": FedProto,
    "FedALA": FedALA,
    "FedPAC": FedPAC,
    "CD2-pFed": CD2pFed,
    "FedAS": FedAS,
    "FedAS-parallel": FedASParallel,
    "FedAS-global": FedASGlobal,
    "FedAS-chained": FedASChained,
    "FedSAM": FedSAM,
    "pFedMe": PFedMe,
    "FedRep-2x": FedRep2x,
    "pFedHN-chunked": PFedHNChunked,
    "PLGU-LF": PLGULF,
    "PLGU-GRep": PLGUGRep,
    "PLGU-GHN": PLGUGHN,
    "FLinear": FLinear,
    "FairFed": FairFed,
    "FedFB": FedFB,
    "Reweight": Reweight,
    "Regular": Regular,
    "EquFL": EquFL,
    "Gaussian-update": GaussianUpdate,
    "Uniform-update": UniformUpdate,
    "PerFedAvg": PerFedAvg,
    "GA": GA,
    "GRACE": GRACE,
    "FAA": FAA,
    "FAA-lagged": FAALagged,
    "FFT-GP": FFTGP,
    "FFT-GP-lagged": FFTGPLagged,
    "FFT-GP-beside": FFTGPBeside,
    "FedCLIP": FedCLIP,
    "PromptFL": PromptFL,
}
