"""Split backpropagation: the loss, or any stage of a network, is optimized in its own way, the rest as usual.

`split` makes a loss of one step on a stage; `NewtonLoss` does Newton steps, and `Resgro` steps that need no gradient.
In all of them the gradient is ``y - z*``, with z* the end of the step.
"""

from softly.optimization.newton import NewtonLoss, NewtonStep
from softly.optimization.resgro import Resgro
from softly.optimization.splitting import split

__all__ = ["NewtonLoss", "NewtonStep", "Resgro", "split"]
