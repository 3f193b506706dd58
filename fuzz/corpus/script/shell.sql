\setshell x echo 1
