#include "train/run/trainer.h"

void trainer_note(const struct run *run, const char *message)
{
    if (run->callbacks->note)
        run->callbacks->note(run->callbacks->user, message);
}
