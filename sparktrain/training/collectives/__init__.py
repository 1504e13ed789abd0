"""Operations in which every member of a gang takes part, over Horovod or TensorFlow's collectives."""
